"""Addresses, arrays, textures and copies of the CUDA runtime as the driver API has them."""

import ctypes
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

#: Room for a Py_buffer, whose first word is the address (the stable ABI of Python).
_Buffer: Final = ctypes.c_void_p * 10


def address_of(argument: Any) -> int:
    """Return the address that an argument means: a number, a pointer of cuda-bindings, or an object with a buffer."""
    if argument is None or isinstance(argument, numbers.Integral):
        return int(argument or 0)
    buffer = _Buffer()
    try:  # before int(), which reads a number out of bytes
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(argument), ctypes.byref(buffer), 0)
    except TypeError:
        return int(argument)
    address = buffer[0] or 0
    # the caller holds the object while the call lasts
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return int(address)


_INVALID_VALUE, _INVALID_CHANNELS = 1, 20
_CHANNELS: Final = (1, 2, 4)
#: The structure of a resource that is one handle, by the number of its type; the handle's name in the runtime and here.
_HANDLES: Final = (("array", "array", "hArray"), ("mipmap", "mipmap", "hMipmappedArray"))
_SAME_IN_TEXTURES: Final = (
    "maxAnisotropy",
    "mipmapLevelBias",
    "minMipmapLevelClamp",
    "maxMipmapLevelClamp",
    "borderColor",
)


class CallError(Exception):
    """A call fails; its only argument is the number of the error."""


class RefusedError(Exception):
    """A call needs what is not served."""


def expect(valid: object, otherwise: int = _INVALID_VALUE) -> None:
    """Let a call fail, with cudaErrorInvalidValue or another error, unless something is valid."""
    if not valid:
        raise CallError(otherwise)


@dataclass
class _End:
    """Where a copy starts or ends: an array or an address, and the offset inside."""

    array: Any = None
    address: int = 0
    pitch: int = 0
    height: int = 0
    x: int = 0
    y: int = 0
    z: int = 0


class Arrays(ABC):
    """The functions of the CUDA runtime for arrays, textures and the nodes of graphs that copy and fill.

    `runtime`, `driver`: ``cuda.bindings.runtime`` and ``cuda.bindings.driver``, or modules like these.
    `table`: the table of ``cuda_runtime.toml``.
    """

    def __init__(self, runtime: Any, driver: Any, table: dict[str, Any]) -> None:
        self._runtime, self._driver, self._table = runtime, driver, table
        self._format_of: dict[tuple[int, ...], tuple[Any, int]] = {}
        self._channels_of: dict[tuple[int, int], tuple[int, ...]] = {}
        for name, (kind, bits) in table["formats"].items():
            for count in _CHANNELS:
                self._add_format(f"CU_AD_FORMAT_{name}", f"cudaChannelFormatKind{kind}", [bits] * count)
        for name, (kind, *bits) in (table["whole_formats"] | table["block_formats"]).items():
            self._add_format(f"CU_AD_FORMAT_{name}", f"cudaChannelFormatKind{kind}", bits)

        self._kinds = {described[-1] for described in self._format_of}
        self._kinds.add(int(self._runtime.cudaChannelFormatKind.cudaChannelFormatKindNone))
        blocks = (getattr(driver.CUarray_format, f"CU_AD_FORMAT_{name}", None) for name in table["block_formats"])
        self._blocks = {int(format_) for format_ in blocks if format_ is not None}

    def _add_format(self, name: str, kind: str, widths: list[int]) -> None:
        format_ = getattr(self._driver.CUarray_format, name, None)
        theirs = getattr(self._runtime.cudaChannelFormatKind, kind, None)
        if format_ is None or theirs is None:  # a version before it
            return
        described = (*widths, *[0] * (4 - len(widths)), int(theirs))
        self._format_of[described] = format_, len(widths)
        self._channels_of[int(format_), len(widths)] = described

    @abstractmethod
    def _forward(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a function of the driver in the context of the current device; return the runtime's results.

        Raises CallError if it fails.
        """

    # -- channels

    def _format(self, channels: Any) -> tuple[Any, int]:
        """Return the driver's format and the number of channels of a cudaChannelFormatDesc."""
        expect(channels is not None)
        described = (channels.x, channels.y, channels.z, channels.w, int(channels.f))
        if described[-1] not in self._kinds:
            raise RefusedError
        expect(described in self._format_of, _INVALID_CHANNELS)
        return self._format_of[described]

    def _channels(self, format_: Any, count: int) -> Any:
        """Return the cudaChannelFormatDesc of a format of the driver."""
        expect((int(format_), count) in self._channels_of, _INVALID_CHANNELS)
        channels = self._runtime.cudaChannelFormatDesc()
        channels.x, channels.y, channels.z, channels.w, kind = self._channels_of[int(format_), count]
        channels.f = self._runtime.cudaChannelFormatKind(kind)
        return channels

    # -- arrays

    def _malloc_array(self, channels: Any, width: int, height: int, flags: int) -> tuple[Any, ...]:
        return self._forward("cuArray3DCreate", self._described(channels, (width, height, 0), flags))

    def _malloc_3d_array(self, channels: Any, extent: Any, flags: int) -> tuple[Any, ...]:
        size = extent.width, extent.height, extent.depth
        return self._forward("cuArray3DCreate", self._described(channels, size, flags))

    def _malloc_mipmapped_array(self, channels: Any, extent: Any, levels: int, flags: int) -> tuple[Any, ...]:
        size = extent.width, extent.height, extent.depth
        return self._forward("cuMipmappedArrayCreate", self._described(channels, size, flags), levels)

    def _described(self, channels: Any, size: tuple[int, int, int], flags: int) -> Any:
        descriptor = self._driver.CUDA_ARRAY3D_DESCRIPTOR()
        descriptor.Format, descriptor.NumChannels = self._format(channels)
        descriptor.Width, descriptor.Height, descriptor.Depth = size
        descriptor.Flags = flags  # the same bits in both
        return descriptor

    def _free_array(self, function: str, array: Any) -> tuple[Any, ...]:
        return self._forward(function, array) if address_of(array) else self._forward("cuCtxGetDevice")[:1]

    def _array_get_info(self, array: Any) -> tuple[Any, ...]:
        code, descriptor = self._forward("cuArray3DGetDescriptor", array)
        extent = self._runtime.cudaExtent()
        extent.width, extent.height, extent.depth = descriptor.Width, descriptor.Height, descriptor.Depth
        return code, self._channels(descriptor.Format, descriptor.NumChannels), extent, descriptor.Flags

    def _get_channel_desc(self, array: Any) -> tuple[Any, ...]:
        return self._array_get_info(array)[:2]

    def _rows(self, array: Any) -> tuple[int, int, int]:
        """Return the bytes of an element and of a row of an array, and the number of its rows."""
        _, descriptor = self._forward("cuArray3DGetDescriptor", array)
        described = self._channels_of.get((int(descriptor.Format), descriptor.NumChannels))
        if described is None or int(descriptor.Format) in self._blocks:
            raise RefusedError
        element = sum(described[:4]) // 8
        return element, element * descriptor.Width, max(1, descriptor.Height)

    # -- copies

    def _box(self, source: _End, target: _End, width: int, height: int = 1, depth: int = 1) -> Any:
        """Return the driver's description of a copy; widths and offsets are in bytes."""
        box, kinds = self._driver.CUDA_MEMCPY3D(), self._driver.CUmemorytype
        for prefix, end in (("src", source), ("dst", target)):
            if end.array is None:
                values = {"MemoryType": kinds.CU_MEMORYTYPE_UNIFIED, "Device": end.address}
                values |= {"Pitch": end.pitch, "Height": end.height}
            else:
                values = {"MemoryType": kinds.CU_MEMORYTYPE_ARRAY, "Array": address_of(end.array)}
            for name, value in (values | {"XInBytes": end.x, "Y": end.y, "Z": end.z}).items():
                setattr(box, f"{prefix}{name}", value)
        box.WidthInBytes, box.Height, box.Depth = width, height, depth
        return box

    def _copy(self, box: Any, *stream: Any) -> tuple[Any, ...]:
        return self._forward("cuMemcpy3DAsync" if stream else "cuMemcpy3D", box, *stream)

    def _memcpy_2d_to_array(self, *arguments: Any) -> tuple[Any, ...]:
        array, x, y, source, pitch, width, height, _kind, *stream = arguments
        start = _End(address=address_of(source), pitch=pitch, height=height)
        return self._copy(self._box(start, _End(array, x=x, y=y), width, height), *stream)

    def _memcpy_2d_from_array(self, *arguments: Any) -> tuple[Any, ...]:
        target, pitch, array, x, y, width, height, _kind, *stream = arguments
        end = _End(address=address_of(target), pitch=pitch, height=height)
        return self._copy(self._box(_End(array, x=x, y=y), end, width, height), *stream)

    def _memcpy_2d_array_to_array(self, *arguments: Any) -> tuple[Any, ...]:
        target, to_x, to_y, source, x, y, width, height, _kind = arguments
        return self._copy(self._box(_End(source, x=x, y=y), _End(target, x=to_x, y=to_y), width, height))

    def _memcpy_to_array(self, *arguments: Any) -> tuple[Any, ...]:
        array, x, y, source, count, _kind, *stream = arguments
        return self._copy_rows(_End(address=address_of(source)), _End(array, x=x, y=y), count, *stream)

    def _memcpy_from_array(self, *arguments: Any) -> tuple[Any, ...]:
        target, array, x, y, count, _kind, *stream = arguments
        return self._copy_rows(_End(array, x=x, y=y), _End(address=address_of(target)), count, *stream)

    def _memcpy_array_to_array(self, *arguments: Any) -> tuple[Any, ...]:
        target, to_x, to_y, source, x, y, count, _kind = arguments
        return self._copy_rows(_End(source, x=x, y=y), _End(target, x=to_x, y=to_y), count)

    def _copy_rows(self, source: _End, target: _End, count: int, *stream: Any) -> tuple[Any, ...]:
        """Copy bytes that go on in the next row of an array where one ends: each piece lies in one row of either."""
        from_row, to_row = (self._row_of(end, count) for end in (source, target))
        answer, done = self._forward("cuCtxGetDevice")[:1], 0
        while done < count:
            (start, rest), (end, room) = _after(source, done, from_row), _after(target, done, to_row)
            width = min(count - done, rest, room)
            answer = self._copy(self._box(start, end, width), *stream)
            done += width
        return answer

    def _row_of(self, end: _End, count: int) -> int:
        """Return the bytes of a row at one end of a copy; memory is one row."""
        _, row, height = self._rows(end.array) if end.array is not None else (1, count, 1)
        expect(end.x + end.y * row + count <= row * height and (end.array is not None or end.address or not count))
        return row

    def _memcpy_3d(self, parameters: Any, *stream: Any) -> tuple[Any, ...]:
        return self._copy(self._box_of(parameters), *stream)

    def _box_of(self, parameters: Any) -> Any:
        """Return the driver's description of a copy that a cudaMemcpy3DParms, or one for peers, describes.

        An extent has the elements of the array that takes part, and bytes without one; an offset those of its side.
        """
        expect(parameters is not None)
        ends, elements = [], []
        for prefix in ("src", "dst"):
            array, pointer, at = (getattr(parameters, f"{prefix}{name}") for name in ("Array", "Ptr", "Pos"))
            address = address_of(pointer.ptr)
            expect(bool(address) != bool(address_of(array)))
            if address:
                ends.append(_End(None, address, pointer.pitch, pointer.ysize, at.x, at.y, at.z))
            else:
                elements.append(self._rows(array)[0])
                ends.append(_End(array, x=at.x * elements[-1], y=at.y, z=at.z))
        expect(len(set(elements)) < 2)
        extent, element = parameters.extent, elements[0] if elements else 1
        return self._box(ends[0], ends[1], extent.width * element, extent.height, extent.depth)

    # -- textures and surfaces

    def _create_texture_object(self, resource: Any, texture: Any, view: Any) -> tuple[Any, ...]:
        expect(resource is not None and texture is not None)
        ours = self._driver.CUDA_TEXTURE_DESC()
        ours.addressMode = [self._driver.CUaddress_mode(int(mode)) for mode in texture.addressMode]
        ours.filterMode = self._driver.CUfilter_mode(int(texture.filterMode))
        ours.mipmapFilterMode = self._driver.CUfilter_mode(int(texture.mipmapFilterMode))
        for name in _SAME_IN_TEXTURES:
            setattr(ours, name, getattr(texture, name))
        flags = self._table["texture_flags"].items()
        ours.flags = sum(bit for name, bit in flags if bool(getattr(texture, name)))
        if not int(texture.readMode):
            ours.flags |= self._table["read_as_integer"]
        return self._forward("cuTexObjectCreate", self._resource_of(resource), ours, view)

    def _get_texture_desc(self, handle: Any) -> tuple[Any, ...]:
        code, ours = self._forward("cuTexObjectGetTextureDesc", handle)
        texture, runtime = self._runtime.cudaTextureDesc(), self._runtime
        texture.addressMode = [runtime.cudaTextureAddressMode(int(mode)) for mode in ours.addressMode]
        texture.filterMode = runtime.cudaTextureFilterMode(int(ours.filterMode))
        texture.mipmapFilterMode = runtime.cudaTextureFilterMode(int(ours.mipmapFilterMode))
        for name in _SAME_IN_TEXTURES:
            setattr(texture, name, getattr(ours, name))
        for name, bit in self._table["texture_flags"].items():
            setattr(texture, name, int(bool(ours.flags & bit)))
        texture.readMode = runtime.cudaTextureReadMode(int(not ours.flags & self._table["read_as_integer"]))
        return code, texture

    def _create_surface_object(self, resource: Any) -> tuple[Any, ...]:
        expect(resource is not None)
        return self._forward("cuSurfObjectCreate", self._resource_of(resource))

    def _resource_of(self, resource: Any) -> Any:
        """Return the driver's description of what a texture reads."""
        ours = self._driver.CUDA_RESOURCE_DESC()
        ours.resType = self._driver.CUresourcetype(int(resource.resType))
        read, made = self._copy_resource(resource, ours, to_driver=True)
        if made is not None:
            made.format, made.numChannels = self._format(read.desc)
        return ours

    def _resource(self, function: str, handle: Any) -> tuple[Any, ...]:
        code, ours = self._forward(function, handle)
        resource = self._runtime.cudaResourceDesc()
        resource.resType = self._runtime.cudaResourceType(int(ours.resType))
        read, made = self._copy_resource(ours, resource, to_driver=False)
        if made is not None:
            made.desc = self._channels(read.format, read.numChannels)
        return code, resource

    def _copy_resource(self, source: Any, made: Any, *, to_driver: bool) -> tuple[Any, Any]:
        """Copy all but the type and the format; return the two structures that have the format, or None for both."""
        kind = int(source.resType)
        if hasattr(source, "flags") and hasattr(made, "flags"):  # the runtime has them since CUDA 13.0
            made.flags = source.flags
        if kind < len(_HANDLES):
            place, *names = _HANDLES[kind]
            old, new = names if to_driver else reversed(names)
            setattr(getattr(made.res, place), new, address_of(getattr(getattr(source.res, place), old)))
            return None, None
        place, sizes = self._table["linear_resources"][kind - 2]
        read, written = getattr(source.res, place), getattr(made.res, place)
        written.devPtr = address_of(read.devPtr)
        for name in sizes:
            setattr(written, name, getattr(read, name))
        return read, written

    # -- nodes of graphs

    def _context(self) -> Any:
        """Return the context that a node runs in: the current one, which the first call makes."""
        self._forward("cuCtxGetDevice")
        return self._driver.cuCtxGetCurrent()[1]

    def _add_memcpy_node(self, graph: Any, before: Any, count: int, parameters: Any) -> tuple[Any, ...]:
        box = self._box_of(parameters)
        return self._forward("cuGraphAddMemcpyNode", graph, before, count, box, self._context())

    def _add_memcpy_node_1d(self, *arguments: Any) -> tuple[Any, ...]:
        graph, before, count, target, source, size, _kind = arguments
        box = self._box(_End(address=address_of(source)), _End(address=address_of(target)), size)
        return self._forward("cuGraphAddMemcpyNode", graph, before, count, box, self._context())

    def _add_memset_node(self, graph: Any, before: Any, count: int, parameters: Any) -> tuple[Any, ...]:
        return self._forward("cuGraphAddMemsetNode", graph, before, count, parameters, self._context())

    def _add_mem_alloc_node(self, graph: Any, before: Any, count: int, parameters: Any) -> tuple[Any, ...]:
        expect(parameters is not None)
        ours = self._driver.CUDA_MEM_ALLOC_NODE_PARAMS()
        size, result = self._table["alloc_node"]
        ctypes.memmove(ours.getPtr(), parameters.getPtr(), size)
        answer = self._forward("cuGraphAddMemAllocNode", graph, before, count, ours)
        _give_back(parameters, ours, result)
        return answer

    def _add_node(self, *arguments: Any) -> tuple[Any, ...]:
        *before, parameters = arguments
        expect(parameters is not None)
        ours, types = self._driver.CUgraphNodeParams(), self._driver.CUgraphNodeType
        kind = int(parameters.type)
        if kind == int(types.CU_GRAPH_NODE_TYPE_KERNEL):
            raise RefusedError
        if kind == int(types.CU_GRAPH_NODE_TYPE_MEMCPY):
            ours.type = types.CU_GRAPH_NODE_TYPE_MEMCPY
            ours.memcpy.flags, ours.memcpy.copyCtx = parameters.memcpy.flags, self._context()
            ours.memcpy.copyParams = self._box_of(parameters.memcpy.copyParams)
        else:
            ctypes.memmove(ours.getPtr(), parameters.getPtr(), self._table["node_size"])
        if str(kind) in self._table["node_contexts"]:
            member = getattr(ours, self._table["node_contexts"][str(kind)])
            if not int(member.ctx):
                member.ctx = self._context()
        answer = self._forward("cuGraphAddNode", *before, ours)
        result = self._table["node_results"].get(str(kind))
        if result is not None:
            _give_back(parameters, ours, result)
        return answer


def _give_back(parameters: Any, ours: Any, at: int) -> None:
    """Copy the address that the driver wrote into its structure to the same place of the runtime's."""
    ctypes.memmove(parameters.getPtr() + at, ours.getPtr() + at, ctypes.sizeof(ctypes.c_void_p))


def _after(end: _End, done: int, row: int) -> tuple[_End, int]:
    """Return one end of a copy after some bytes, and how many bytes are left in its row."""
    rows, x = divmod(end.x + done, row)
    if end.array is None:
        return _End(address=end.address + done), row - x
    return _End(end.array, x=x, y=end.y + rows), row - x
