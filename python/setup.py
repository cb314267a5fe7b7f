"""Builds the package, which stores the path of the checkout to find build/libtoeplab.so."""
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class RememberCheckout(build_py):
    def run(self) -> None:
        super().run()
        build = Path(__file__).resolve().parent.parent / "build"
        target = Path(self.build_lib) / "toeplab" / "_checkout.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"BUILD = {str(build)!r}\n")


setup(cmdclass={"build_py": RememberCheckout})
