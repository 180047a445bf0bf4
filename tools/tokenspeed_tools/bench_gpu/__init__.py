"""Speed of the whole engine on one device, with dummy weights: `python -m tokenspeed_tools.bench_gpu`."""
