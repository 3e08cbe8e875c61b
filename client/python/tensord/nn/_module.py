"""The base of all layers, and lists of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from .. import _core
from .._core import Tensor


def _is_floating(dtype: _core.dtype) -> bool:
    return dtype in (_core.float16, _core.bfloat16, _core.float32, _core.float64)


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    detach = getattr(value, "detach", None)  # of PyTorch's parameters, which require gradients
    return _core.asarray(value if detach is None else detach())


class _Parameter:
    def __init__(self, value: Tensor) -> None:
        self.value = value


def Parameter(value: Tensor) -> Any:
    """Marks a tensor as a parameter for a module that gets it as an attribute: self.scale = nn.Parameter(tensor)."""
    return _Parameter(value)


class Module:
    """The base of all layers. A subclass calls super().__init__(), sets parameters and modules as attributes, and
    defines forward()."""

    training: bool
    _parameters: dict[str, Tensor]
    _buffers: dict[str, Tensor]
    _modules: dict[str, Module]

    def __init__(self) -> None:
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_buffers", {})
        object.__setattr__(self, "_modules", {})
        object.__setattr__(self, "training", True)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} doesn't define forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: object) -> None:
        if "_modules" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} must call super().__init__() before it sets {name}")
        if isinstance(value, (_Parameter, Module)):
            self.__dict__.pop(name, None)  # Python would find an earlier plain attribute first
        if isinstance(value, Tensor):
            for registry in (self._parameters, self._buffers):
                if name in registry:
                    registry[name] = value
                    return
        # The new attribute takes the place of an earlier parameter, buffer or module.
        if not isinstance(value, _Parameter):
            self._parameters.pop(name, None)
        self._buffers.pop(name, None)
        self._modules.pop(name, None)
        if isinstance(value, _Parameter):
            self._parameters[name] = value.value
        elif isinstance(value, Module):
            self._modules[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for registry in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(registry, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for registry in (self._parameters, self._buffers, self._modules):
            if name in registry:
                del registry[name]
                return
        object.__delattr__(self, name)

    def register_buffer(self, name: str, value: Tensor) -> None:
        """Sets a tensor that is a part of the state and isn't a parameter, such as a running mean."""
        self._buffers[name] = value

    def children(self) -> Iterator[Module]:
        """Yields the modules that are attributes of this one."""
        yield from self._modules.values()

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yields this module and all modules in it, with their names."""
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """Yields this module and all modules in it."""
        for _, module in self.named_modules():
            yield module

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yields all parameters with their names, in PyTorch's order. A parameter that two modules share comes once."""
        seen: set[int] = set()
        for name, value in self._named_tensors("_parameters"):
            if id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def parameters(self) -> Iterator[Tensor]:
        """Yields all parameters."""
        for _, value in self.named_parameters():
            yield value

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yields all buffers with their names."""
        yield from self._named_tensors("_buffers")

    def _named_tensors(self, *registries: str) -> Iterator[tuple[str, Tensor]]:
        for prefix, module in self.named_modules():
            for registry in registries:
                for name, value in getattr(module, registry).items():
                    yield f"{prefix}.{name}" if prefix else name, value

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._named_tensors("_parameters", "_buffers")

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the parameters and buffers by name. Later changes of the module don't change them."""
        return {name: value.clone() for name, value in self._state()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Sets the parameters and buffers by name. Values are converted to the dtype and the device of the parameter. They
        may also be arrays of NumPy, or tensors of PyTorch: module.load_state_dict(torch_module.state_dict()).

        If a shape differs, or with `strict` if a parameter is missing or a name is unknown, raises a ValueError with all
        these names, and changes nothing.
        """
        own = dict(self._state())
        state = {name: _as_tensor(value) for name, value in state.items()}
        problems = [f"{name} is missing" for name in own if strict and name not in state]
        problems += [f"{name} is unknown" for name in state if strict and name not in own]
        problems += [
            f"{name} has shape {state[name].shape} in place of {value.shape}"
            for name, value in own.items()
            if name in state and state[name].shape != value.shape
        ]
        if problems:
            raise ValueError(f"load_state_dict of {type(self).__name__}: " + "; ".join(problems))
        values = {name: state[name].to(value.device, value.dtype) for name, value in own.items() if name in state}
        for name, value in values.items():
            own[name]._assign(value)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Moves or converts all parameters and buffers, as Tensor.to does. A dtype converts only floating ones. Returns
        this module."""
        seen: set[int] = set()
        for _, value in self._state():
            if id(value) in seen:
                continue
            seen.add(id(value))
            moved = value.to(*args, **kwargs)
            if moved.dtype != value.dtype and not _is_floating(value.dtype):
                moved = moved.to(value.dtype)
            value._assign(moved)
        return self

    def apply(self, function: Callable[[Module], object]) -> Self:
        """Calls the function with every module in this one, then with this one."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Makes this module and all modules in it behave as in training. Returns this module.

        Only Dropout, BatchNorm, and layers with dropout behave differently in training and in evaluation.
        """
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self) -> Self:
        """Makes this module and all modules in it behave as in evaluation: train(False)."""
        return self.train(False)

    def extra_repr(self) -> str:
        """Returns the text between the brackets in repr() of this module."""
        return ""

    def __repr__(self) -> str:
        lines = []
        for name, module in self._modules.items():
            lines.append(f"  ({name}): " + repr(module).replace("\n", "\n  "))
        if not lines:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"


class ModuleList(Module):
    """A list of modules, named "0", "1", …."""

    def __init__(self, modules: Iterator[Module] | list[Module] | tuple[Module, ...] = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Self:
        setattr(self, str(len(self._modules)), module)
        return self

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())


class Sequential(ModuleList):
    """Modules applied one after the other, named "0", "1", …."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x
