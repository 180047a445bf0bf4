"""What pyproject.toml cannot declare: the native build and the package roots."""

from setuptools import find_packages, setup

ROOTS = {"tokenspeed": ".", "tokenspeed_kernels": "kernels", "tokenspeed_tools": "tools"}

setup(
    packages=[
        name for package, root in ROOTS.items() for name in find_packages(root, include=[package, f"{package}.*"])
    ],
    package_dir={
        "": ".",
        "tokenspeed_kernels": "kernels/tokenspeed_kernels",
        "tokenspeed_tools": "tools/tokenspeed_tools",
    },
    cffi_modules=["native/cffi_build.py:ffibuilder"],
)
