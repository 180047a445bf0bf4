"""Tests of `tokenspeed bench`."""
