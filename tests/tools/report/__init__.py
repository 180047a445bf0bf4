"""Tests of `tokenspeed bench report`."""
