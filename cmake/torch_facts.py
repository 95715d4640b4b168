"""Prints what a build against the installed torch must know, as a CMake list: its version, its
folder, and what to define for its ABI of std::string, and for that of its pybind11."""

import pathlib

import torch

facts = [torch.__version__, str(pathlib.Path(torch.__file__).resolve().parent)]
facts.append(f"_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):  # up to torch 2.8
    value = getattr(torch._C, f"_PYBIND11_{name}", None)
    if value is not None:
        facts.append(f'PYBIND11_{name}="{value}"')
print(";".join(facts))
