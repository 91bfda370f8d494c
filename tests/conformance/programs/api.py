"""The functions of the driver API that programs call, as data: one line each.

``group weight symbol parameter ...``. Parameters:

============================  ========================================================================================
``>stream``                   a new handle of a kind is written; ``>=stream``: one that may be known already
``>i`` ``>x`` ``>s`` ...      a value is written, by its letter (execute.py); ``>c64``: a text of 64 bytes
``stream``                    a live handle; ``?stream``: or NULL, which has a meaning; ``~stream``: it is gone then
``dev``                       an ordinal
``n(0,1|7,-1)``               a number, in front of the bar valid
``@name``                     what the function `name` of arguments.py makes
============================  ========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

# ruff: noqa: E501, SIM905 (a function is a line, and names are words)

__all__ = ["FUNCTIONS", "KINDS", "MAKERS", "THEMES", "WAITING", "Function"]

#: Kinds of handles, and the letter of those that are small numbers.
KINDS = {
    "ctx": "", "stream": "", "event": "", "mod": "", "lib": "", "fun": "", "ker": "", "link": "",
    "dptr": "", "mptr": "", "aptr": "", "hptr": "", "reg": "", "pool": "", "vmh": "v", "va": "", "arr": "", "mip": "",
    "tex": "t", "surf": "t", "texref": "", "graph": "", "node": "", "exec": "", "uobj": "", "cond": "c", "gctx": "",
    "desc": "", "note": "", "log": "",
}  # fmt: skip

#: Which functions make a kind, for a call that needs one.
MAKERS = {
    "ctx": "cuCtxCreate_v4 cuCtxCreate_v2 cuDevicePrimaryCtxRetain",
    "stream": "cuStreamCreate cuStreamCreate cuStreamCreateWithPriority",
    "event": "cuEventCreate",
    "mod": "cuModuleLoadData",
    "lib": "cuLibraryLoadData",
    "fun": "cuModuleGetFunction",
    "ker": "cuLibraryGetKernel",
    "link": "cuLinkCreate_v2",
    "dptr": "cuMemAlloc_v2 cuMemAlloc_v2 cuMemAllocPitch_v2",
    "mptr": "cuMemAllocManaged",
    "aptr": "cuMemAllocAsync cuMemAllocFromPoolAsync",
    "hptr": "cuMemHostAlloc cuMemAllocHost_v2",
    "reg": "cuMemHostRegister_v2",
    "pool": "cuMemPoolCreate cuDeviceGetDefaultMemPool cuDeviceGetMemPool",
    "vmh": "cuMemCreate",
    "va": "cuMemAddressReserve",
    "arr": "cuArrayCreate_v2 cuArray3DCreate_v2",
    "mip": "cuMipmappedArrayCreate",
    "tex": "cuTexObjectCreate",
    "surf": "cuSurfObjectCreate",
    "texref": "cuTexRefCreate",
    "graph": "cuGraphCreate",
    "node": "cuGraphAddEmptyNode cuGraphAddMemsetNode cuGraphAddHostNode cuGraphAddMemcpyNode cuGraphAddNode_v2",
    "exec": "cuGraphInstantiateWithFlags",
    "uobj": "cuUserObjectCreate",
    "cond": "cuGraphConditionalHandleCreate",
    "gctx": "cuGreenCtxCreate",
    "desc": "cuDevResourceGenerateDesc",
    "note": "cuDeviceRegisterAsyncNotification",
    "log": "cuLogsRegisterCallback",
}

TABLE = """
dev 1 cuInit n(0|1,7)
dev 1 cuDriverGetVersion >i
dev 2 cuGetErrorName n(0,1,2,3,4,36,100,101,200,201,209,218,400,500,700,709,801,900,906,908,910,913,999|-1,12345,5,1000) >s
dev 2 cuGetErrorString n(0,1,2,3,4,36,100,101,200,201,209,218,400,500,700,709,801,900,906,908,910,913,999|-1,12345) >s
dev 1 cuDeviceGet >i n(0|1,-1,99)
dev 1 cuDeviceGetCount >i
dev 1 cuDeviceGetName >c64 n(64,64,8,1|0,-1) dev
dev 1 cuDeviceGetUuid_v2 >X16 dev
dev 1 cuDeviceGetLuid >X8 >x4 dev
dev 1 cuDeviceTotalMem_v2 >x dev
dev 2 cuDeviceGetTexture1DLinearMaxWidth >Q n(1,2,3,8,9,10,16,32|0,4,77) n(1,2,4|0,3,5) dev
dev 8 cuDeviceGetAttribute >i @device_attribute dev
dev 1 cuDeviceGetHostAtomicCapabilities >I @atomics n(1|0,2) dev
dev 1 cuDeviceGetExecAffinitySupport >i n(0|1,2,-1) dev
dev 1 cuFlushGPUDirectRDMAWrites n(0|1,7) n(100,200|0,7)
dev 1 cuDeviceGetProperties @properties_out dev
dev 1 cuDeviceComputeCapability >i >i dev
dev 1 cuDeviceGetByPCIBusId >i @pci_text
dev 1 cuDeviceGetPCIBusId @pci_out n(32,16,13|12,1,0,-1) dev
dev 1 cuModuleGetLoadingMode >I
dev 1 cuDeviceGetNvSciSyncAttributes n(0|0) dev n(1,2,3|0,4)
ctx 4 cuDevicePrimaryCtxRetain >=ctx dev
ctx 3 cuDevicePrimaryCtxRelease_v2 @primary_release
ctx 2 cuDevicePrimaryCtxSetFlags_v2 dev n(0,1,2,4,8,16|3,5,7,32,64,128,255,256,512)
ctx 3 cuDevicePrimaryCtxGetState dev >I >i
ctx 1 cuDevicePrimaryCtxReset_v2 @primary_release
ctx 3 cuCtxCreate_v4 >ctx @ctx_params n(0,1,2,4,8,16|3,5,6,7,32,64,128,255,256,512,-1) dev
ctx 2 cuCtxCreate_v2 >ctx n(0,1,2,4,8,16|3,5,6,7,32,64,128,255,256,512,-1) dev
ctx 1 cuCtxCreate_v3 >ctx @affinity n(0,0,0|1,2,-1) n(0,1,2,4,8,16|3,7,32,128,256) dev
ctx 1 cuCtxAttach >=ctx n(0|1)
ctx 1 cuCtxDetach ~ctx
ctx 3 cuCtxDestroy_v2 ~ctx
ctx 4 cuCtxPushCurrent_v2 ctx
ctx 3 cuCtxPopCurrent_v2 >=ctx
ctx 4 cuCtxSetCurrent ?ctx
ctx 4 cuCtxGetCurrent >=ctx
ctx 3 cuCtxGetDevice >i
ctx 1 cuCtxGetDevice_v2 >i ?ctx
ctx 3 cuCtxGetFlags >I
ctx 2 cuCtxSetFlags n(0,1,2,4,8,16|3,5,7,32,64,128,255,256)
ctx 2 cuCtxGetId ?ctx >x
ctx 3 cuCtxSynchronize
ctx 1 cuCtxSynchronize_v2 ?ctx
ctx 3 cuCtxSetLimit n(0,1,2,4,5,6|3,7,8,9,10,99) n(0,1,64,128,1024,2048,4096,8388608|1099511627776,-1,3,1000)
ctx 3 cuCtxGetLimit >Q n(0,1,2,3,4,5,6,7,8,9|10,99,-1)
ctx 2 cuCtxGetCacheConfig >I
ctx 2 cuCtxSetCacheConfig n(0,1,2,3|4,-1,99)
ctx 2 cuCtxGetApiVersion ?ctx >I
ctx 2 cuCtxGetStreamPriorityRange >i >i
ctx 1 cuCtxResetPersistingL2Cache
ctx 1 cuCtxGetExecAffinity @affinity_out n(0|1,2)
ctx 1 cuCtxRecordEvent ctx event
ctx 1 cuCtxWaitEvent ctx event
ctx 1 cuCtxGetSharedMemConfig >I
ctx 1 cuCtxSetSharedMemConfig n(0,1,2|3,-1)
peer 2 cuDeviceCanAccessPeer >i dev dev
peer 2 cuCtxEnablePeerAccess ctx n(0|1)
peer 2 cuCtxDisablePeerAccess ctx
peer 2 cuDeviceGetP2PAttribute >i n(1,2,3,4,5|0,6,99) dev dev
peer 1 cuDeviceGetP2PAtomicCapabilities >I @atomics n(1|0,2) dev dev
mod 4 cuModuleLoadData >mod @image
mod 2 cuModuleLoadDataEx >mod @image @jit_count @jit_keys @jit_values
mod 1 cuModuleLoadFatBinary >mod @image
mod 1 cuModuleLoad >mod @path
mod 2 cuModuleUnload ~mod
mod 4 cuModuleGetFunction >=fun mod @kernel_name
mod 2 cuModuleGetFunctionCount >I mod
mod 1 cuModuleEnumerateFunctions >=fun n(1,1|0,9) mod
mod 3 cuModuleGetGlobal_v2 >=dptr >Q mod @variable
mod 1 cuModuleGetTexRef >=texref mod @variable
mod 1 cuModuleGetSurfRef >x mod @variable
lib 4 cuLibraryLoadData >lib @image n(0|0) n(0|0) n(0|0) n(0|0) n(0|0) n(0|0)
lib 2 cuLibraryLoadData >lib @image @jit_keys @jit_values @jit_count @lib_keys @lib_values @lib_count
lib 1 cuLibraryLoadFromFile >lib @path n(0|0) n(0|0) n(0|0) n(0|0) n(0|0) n(0|0)
lib 2 cuLibraryUnload ~lib
lib 4 cuLibraryGetKernel >=ker lib @kernel_name
lib 2 cuLibraryGetKernelCount >I lib
lib 1 cuLibraryEnumerateKernels >=ker n(1,1|0,9) lib
lib 2 cuLibraryGetModule >=mod lib
lib 3 cuKernelGetFunction >=fun ker
lib 2 cuKernelGetLibrary >=lib ker
lib 2 cuLibraryGetGlobal >=dptr >Q lib @variable
lib 1 cuLibraryGetManaged >=mptr >Q lib @variable
lib 1 cuLibraryGetUnifiedFunction >x lib @variable
lib 3 cuKernelGetAttribute >i @function_attribute ker dev
lib 3 cuKernelSetAttribute @function_attribute @attribute_value ker dev
lib 1 cuKernelSetCacheConfig ker n(0,1,2,3|4,-1) dev
lib 2 cuKernelGetName >s ker
lib 2 cuKernelGetParamInfo ker n(0,1|2,3,-1) >Q >Q
fun 4 cuFuncGetAttribute >i @function_attribute fun
fun 4 cuFuncSetAttribute fun @function_attribute @attribute_value
fun 2 cuFuncSetCacheConfig fun n(0,1,2,3|4,-1)
fun 1 cuFuncSetSharedMemConfig fun n(0,1,2|3,-1)
fun 2 cuFuncGetModule >=mod fun
fun 2 cuFuncGetName >s fun
fun 2 cuFuncGetParamInfo fun n(0,1|2,3,-1) >Q >Q
fun 2 cuFuncIsLoaded >I fun
fun 1 cuFuncLoad fun
fun 1 cuFuncSetBlockShape fun n(32,128|0,4096) n(1|0) n(1|0,65)
fun 1 cuFuncSetSharedSize fun n(0,1024|1048576)
fun 1 cuParamSetSize fun n(0,8,12|5000)
fun 1 cuParamSeti fun n(0,8|3,5000) n(7|7)
fun 1 cuParamSetf fun n(0,8|3,5000) @float
fun 1 cuParamSetv fun n(0,8|3,5000) @host n(4,8|0)
link 3 cuLinkCreate_v2 n(0|0) n(0|0) n(0|0) >link
link 2 cuLinkAddData_v2 link n(1|0,9) @ptx_image @ptx_size @text n(0|0) n(0|0) n(0|0)
link 1 cuLinkAddFile_v2 link n(0,1,2|9) @path n(0|0) n(0|0) n(0|0)
link 2 cuLinkComplete link >x >x
link 2 cuLinkDestroy ~link
mem 2 cuMemGetInfo_v2 >x >x
mem 6 cuMemAlloc_v2 >dptr @size
mem 2 cuMemAllocPitch_v2 >dptr >Q n(1,64,100,512,1000|0,-1,1152921504606846976) n(1,4,64|0,-1) n(4,8,16|0,1,2,3,32)
mem 4 cuMemFree_v2 @free
mem 3 cuMemGetAddressRange_v2 >=dptr >Q @inside
mem 2 cuMemAllocHost_v2 >hptr @size
mem 3 cuMemHostAlloc >hptr @size n(0,1,2,3,4,7|8,16,-1)
mem 2 cuMemFreeHost ~hptr
mem 3 cuMemHostGetDevicePointer_v2 >=dptr hptr n(0|1)
mem 2 cuMemHostGetFlags >I hptr
mem 1 cuMemHostGetFlags >I reg
mem 1 cuMemHostGetDevicePointer_v2 >=dptr reg n(0|1)
mem 2 cuMemHostRegister_v2 @register n(4096,8192,65536|0,100,-1) n(0,1,2,3|4,8,16,-1)
mem 2 cuMemHostUnregister ~reg
mem 2 cuMemAllocManaged >mptr @small_size n(1,1,2|0,3,4,-1)
mem 5 cuPointerGetAttribute @pointer_attribute
mem 1 cuPointerSetAttribute @set_pointer_attribute n(6|1,2,7,99) dptr
mem 2 cuPointerGetAttributes @pointer_attributes
mem 1 cuMemGetHandleForAddressRange >x4 dptr n(65536,2097152|0,1) n(1|0,7) n(0|1,2)
copy 2 cuMemcpy @dst @src @count
copy 3 cuMemcpyHtoD_v2 @dst @host @count
copy 3 cuMemcpyDtoH_v2 @host @src @count
copy 2 cuMemcpyDtoD_v2 @dst @src @count
copy 1 cuMemcpyPeer @dst ctx @src ctx @count
copy 2 cuMemcpy2D_v2 @copy2d
copy 1 cuMemcpy2DUnaligned_v2 @copy2d
copy 2 cuMemcpy3D_v2 @copy3d
copy 1 cuMemcpy3DPeer @copy3dpeer
copy 2 cuMemcpyAsync @dst @src @count ?stream
copy 1 cuMemcpyPeerAsync @dst ctx @src ctx @count ?stream
copy 3 cuMemcpyHtoDAsync_v2 @dst @host @count ?stream
copy 2 cuMemcpyDtoHAsync_v2 @host @src @count ?stream
copy 2 cuMemcpyDtoDAsync_v2 @dst @src @count ?stream
copy 1 cuMemcpy2DAsync_v2 @copy2d ?stream
copy 1 cuMemcpy3DAsync_v2 @copy3d ?stream
copy 1 cuMemcpy3DPeerAsync @copy3dpeer ?stream
batch 2 cuMemcpyBatchAsync_v2 @dst_list @src_list @count_list n(2|0,1) @copy_attributes @zero_list n(1|0,3) stream
batch 1 cuMemcpyBatchAsync @dst_list @src_list @count_list n(2|0,1) @copy_attributes @zero_list n(1|0,3) >Q stream
batch 1 cuMemcpy3DBatchAsync_v2 n(1|0) @copy3dbatch n(0|1) stream
batch 1 cuMemBatchDecompressAsync @decompress n(1|0) n(0|1) >x stream
memset 2 cuMemsetD8_v2 @dst n(0,127|0) @count
memset 2 cuMemsetD16_v2 @dst n(0,4660|0) @count2
memset 2 cuMemsetD32_v2 @dst n(0,305419896|0) @count4
memset 1 cuMemsetD2D8_v2 @dst n(0,64,512|1,-1) n(0,127|0) n(1,16,64|0,1000000) n(1,4|0)
memset 1 cuMemsetD2D16_v2 @dst n(0,64,512|1,-1) n(0,127|0) n(1,16,32|0,1000000) n(1,4|0)
memset 1 cuMemsetD2D32_v2 @dst n(0,64,512|1,-1) n(0,127|0) n(1,16|0,1000000) n(1,4|0)
memset 2 cuMemsetD8Async @dst n(0,127|0) @count ?stream
memset 1 cuMemsetD16Async @dst n(0,4660|0) @count2 ?stream
memset 2 cuMemsetD32Async @dst n(0,305419896|0) @count4 ?stream
memset 1 cuMemsetD2D8Async @dst n(0,64,512|1) n(0,127|0) n(1,16,64|0,1000000) n(1,4|0) ?stream
memset 1 cuMemsetD2D16Async @dst n(0,64,512|1) n(0,127|0) n(1,16,32|0,1000000) n(1,4|0) ?stream
memset 1 cuMemsetD2D32Async @dst n(0,64,512|1) n(0,127|0) n(1,16|0,1000000) n(1,4|0) ?stream
stream 4 cuStreamCreate >stream n(0,1|2,3,-1)
stream 3 cuStreamCreateWithPriority >stream n(0,1|2,3) n(0,-1,-5,1,5,-100|99)
stream 3 cuStreamGetPriority ?stream >i
stream 2 cuStreamGetDevice ?stream >i
stream 3 cuStreamGetFlags ?stream >I
stream 2 cuStreamGetId ?stream >x
stream 2 cuStreamGetCtx ?stream >=ctx
stream 1 cuStreamGetCtx_v2 ?stream >=ctx >=gctx
stream 3 cuStreamWaitEvent ?stream event n(0,1|2,-1)
stream 1 cuStreamAddCallback ?stream @callback n(0|0) n(0|1,-1)
stream 2 cuLaunchHostFunc ?stream @callback n(0|0)
stream 3 cuStreamQuery ?stream
stream 3 cuStreamSynchronize ?stream
stream 3 cuStreamDestroy_v2 ~stream
stream 1 cuStreamCopyAttributes stream stream
stream 3 cuStreamGetAttribute ?stream @stream_attribute
stream 2 cuStreamSetAttribute ?stream @set_stream_attribute
mng 2 cuStreamAttachMemAsync ?stream mptr n(0,0|1,64,-1) n(1,2,4|0,3,8)
gate 5 cuStreamWaitValue32_v2 ?stream @gate n(1) n(0)
gate 1 cuStreamWaitValue64_v2 ?stream @gate n(1) n(0)
gate 4 cuStreamWriteValue32_v2 ?stream @word n(1,2,3) n(0)
gate 6 cuLaunchHostFunc ?stream @post @counter
gate 2 cuMemcpyDtoHAsync_v2 @word @constant n(4) ?stream
gate 5 cuEventRecord event ?stream
gate 5 cuStreamWaitEvent ?stream event n(0|2)
gate 3 cuStreamQuery ?stream
gate 3 cuEventQuery event
gate 1 cuStreamSynchronize ?stream
event 3 cuEventCreate >event n(0,0,0,0,1,2,3,6|4,5,7,8,-1)
event 7 cuEventRecord event ?stream
event 1 cuEventRecordWithFlags event ?stream n(0,1|2,-1)
event 3 cuEventQuery event
event 3 cuEventSynchronize event
event 3 cuEventDestroy_v2 ~event
event 2 cuEventElapsedTime >f event event
event 2 cuEventElapsedTime_v2 >f event event
pool 4 cuMemPoolCreate >pool @pool_props
pool 2 cuMemPoolDestroy ~pool
pool 3 cuMemPoolTrimTo pool n(0,1,65536,33554432|-1)
pool 5 cuMemPoolGetAttribute pool @pool_attribute
pool 5 cuMemPoolSetAttribute pool @set_pool_attribute
pool 2 cuMemPoolSetAccess pool @access n(1|0,2)
pool 3 cuMemPoolGetAccess >I pool @location
pool 3 cuDeviceSetMemPool dev pool
pool 3 cuDeviceGetMemPool >=pool dev
pool 2 cuDeviceGetDefaultMemPool >=pool dev
pool 1 cuMemGetDefaultMemPool >=pool @location n(1,2|0,3)
pool 1 cuMemGetMemPool >=pool @location n(1,2|0,3)
pool 1 cuMemSetMemPool @location n(1,2|0,3) pool
pool 5 cuMemAllocAsync >aptr @size ?stream
pool 5 cuMemAllocFromPoolAsync >aptr @size pool ?stream
pool 5 cuMemFreeAsync ~aptr ?stream
pool 1 cuMemFree_v2 ~aptr
pool 1 cuMemFreeAsync dptr ?stream
pool 1 cuMemPoolExportToShareableHandle >x4 pool n(1|0,2,8) n(0|1)
pool 1 cuMemPoolImportFromShareableHandle >pool n(-1,9999|0) n(1|0,2,8) n(0|1)
pool 1 cuMemPoolExportPointer >X64 aptr
pool 1 cuMemPoolImportPointer >=dptr pool @export_blob
pool 3 cuPointerGetAttribute @pointer_attribute
pool 2 cuMemGetAddressRange_v2 >=dptr >Q aptr
vmm 3 cuMemGetAllocationGranularity >Q @alloc_prop n(0,1|2,-1)
vmm 5 cuMemAddressReserve >va @vm_size n(0,0,2097152|1,3,4096) n(0,0|1,4096) n(0|1)
vmm 2 cuMemAddressFree ~va @va_size
vmm 5 cuMemCreate >vmh @vm_size @alloc_prop n(0|1)
vmm 2 cuMemRelease ~vmh
vmm 6 cuMemMap @va_place @va_size n(0|4096,2097152) @vmh_like n(0|1)
vmm 3 cuMemUnmap @va_place @va_size
vmm 5 cuMemSetAccess @va_place @va_size @access n(1|0,2)
vmm 4 cuMemGetAccess >Q @location va
vmm 2 cuMemExportToShareableHandle >x4 vmh n(1|0,2,8) n(0|1)
vmm 1 cuMemImportFromShareableHandle >vmh n(-1,9999|0) n(1|0,2,8)
vmm 3 cuMemGetAllocationPropertiesFromHandle @alloc_prop_out vmh
vmm 2 cuMemRetainAllocationHandle >=vmh va
vmm 2 cuMemsetD8_v2 va n(1,2|3) n(16,4096|2097152,999999999)
vmm 2 cuPointerGetAttribute @pointer_attribute
vmm 2 cuMemGetAddressRange_v2 >=va >Q va
vmm 1 cuMulticastGetGranularity >Q @multicast n(0,1|2)
vmm 1 cuMemMapArrayAsync @map_info n(1|0) stream
mng 5 cuMemAllocManaged >mptr @small_size n(1,1,2|0,3,4,-1)
mng 4 cuMemAdvise mptr @managed_size n(1,2,3,4,5,6|0,7,99) n(0,-1|1,-2,99)
mng 4 cuMemAdvise_v2 mptr @managed_size n(1,2,3,4,5,6|0,7,99) @locv
mng 3 cuMemPrefetchAsync mptr @managed_size n(0,-1|1,-2,99) ?stream
mng 3 cuMemPrefetchAsync_v2 mptr @managed_size @locv n(0|1) ?stream
mng 5 cuMemRangeGetAttribute @range_attribute mptr @managed_size
mng 1 cuMemRangeGetAttributes @range_attributes mptr @managed_size
mng 1 cuMemPrefetchBatchAsync @managed_list @count_list n(2|0,1) @location @zero_list n(1|0,3) n(0|1) stream
mng 1 cuMemDiscardBatchAsync @managed_list @count_list n(2|0,1) n(0|1) stream
mng 1 cuMemDiscardAndPrefetchBatchAsync @managed_list @count_list n(2|0,1) @location @zero_list n(1|0,3) n(0|1) stream
mng 2 cuMemFree_v2 ~mptr
mng 3 cuPointerGetAttribute @pointer_attribute
mng 1 cuMemsetD8_v2 mptr n(0,127|0) n(1,64|1099511627776)
arr 5 cuArrayCreate_v2 >arr @array_desc
arr 5 cuArray3DCreate_v2 >arr @array3d_desc
arr 4 cuArrayGetDescriptor_v2 @array_desc_out arr
arr 4 cuArray3DGetDescriptor_v2 @array3d_desc_out arr
arr 1 cuArrayGetSparseProperties @sparse_out arr
arr 1 cuMipmappedArrayGetSparseProperties @sparse_out mip
arr 1 cuArrayGetMemoryRequirements @requirements_out arr dev
arr 1 cuMipmappedArrayGetMemoryRequirements @requirements_out mip dev
arr 1 cuArrayGetPlane >=arr arr n(0,1|2,9)
arr 3 cuArrayDestroy ~arr
arr 4 cuMipmappedArrayCreate >mip @mipmap_desc n(1,2,3,4|0,20)
arr 3 cuMipmappedArrayGetLevel >=arr mip n(0,1|2,5,99)
arr 2 cuMipmappedArrayDestroy ~mip
arr 2 cuMemcpyDtoA_v2 arr n(0,0,4,16|1,1000000) dptr n(1,4,16,64|0,1000000)
arr 2 cuMemcpyAtoD_v2 dptr arr n(0,0,4,16|1,1000000) n(1,4,16,64|0,1000000)
arr 2 cuMemcpyHtoA_v2 arr n(0,0,4,16|1,1000000) @host n(1,4,16,64|0,1000000)
arr 2 cuMemcpyAtoH_v2 @host arr n(0,0,4,16|1,1000000) n(1,4,16,64|0,1000000)
arr 1 cuMemcpyAtoA_v2 arr n(0,0,4,16|1,1000000) arr n(0,0,4,16|1) n(1,4,16,64|0,1000000)
arr 1 cuMemcpyHtoAAsync_v2 arr n(0,0,4,16|1,1000000) @host n(1,4,16,64|0,1000000) ?stream
arr 1 cuMemcpyAtoHAsync_v2 @host arr n(0,0,4,16|1,1000000) n(1,4,16,64|0,1000000) ?stream
arr 3 cuMemcpy2D_v2 @copy2d
arr 1 cuMemcpy2DAsync_v2 @copy2d ?stream
arr 3 cuMemcpy3D_v2 @copy3d
arr 1 cuPointerGetAttribute @pointer_attribute
tex 6 cuTexObjectCreate >tex @resource_desc @texture_desc @view_desc
tex 2 cuTexObjectDestroy ~tex
tex 3 cuTexObjectGetResourceDesc @resource_out tex
tex 3 cuTexObjectGetTextureDesc @texture_out tex
tex 2 cuTexObjectGetResourceViewDesc @view_out tex
tex 4 cuSurfObjectCreate >surf @resource_desc
tex 2 cuSurfObjectDestroy ~surf
tex 2 cuSurfObjectGetResourceDesc @resource_out surf
tex 2 cuTexRefCreate >texref
tex 1 cuTexRefDestroy ~texref
tex 1 cuTexRefSetArray texref arr n(1|0,2)
tex 1 cuTexRefSetMipmappedArray texref mip n(1|0,2)
tex 1 cuTexRefSetAddress_v2 >Q texref dptr n(4,16,64|0,1099511627776)
tex 1 cuTexRefSetAddress2D_v3 texref @array_desc dptr n(32,512|0,1)
tex 1 cuTexRefSetFormat texref n(1,2,3,8,9,10,16,32|0,4,77) n(1,2,4|0,3,5)
tex 1 cuTexRefSetAddressMode texref n(0,1,2|3,-1) n(0,1,2,3|4,-1)
tex 1 cuTexRefSetFilterMode texref n(0,1|2)
tex 1 cuTexRefSetMipmapFilterMode texref n(0,1|2)
tex 1 cuTexRefSetMaxAnisotropy texref n(0,1,16|17,-1)
tex 1 cuTexRefSetFlags texref n(0,1,2,3|4,16,32,-1)
tex 1 cuTexRefGetAddress_v2 >=dptr texref
tex 1 cuTexRefGetArray >=arr texref
tex 1 cuTexRefGetMipmappedArray >=mip texref
tex 1 cuTexRefGetAddressMode >I texref n(0,1,2|3,-1)
tex 1 cuTexRefGetFilterMode >I texref
tex 1 cuTexRefGetFormat >I >i texref
tex 1 cuTexRefGetMaxAnisotropy >i texref
tex 1 cuTexRefGetFlags >I texref
tex 3 cuTensorMapEncodeTiled @tensor_tiled
tex 1 cuTensorMapEncodeIm2col @tensor_im2col
tex 1 cuTensorMapReplaceAddress @tensor_map dptr
ipc 3 cuIpcGetEventHandle >X64 event
ipc 1 cuIpcOpenEventHandle >event @ipc_blob
ipc 3 cuIpcGetMemHandle >X64 dptr
ipc 1 cuIpcOpenMemHandle_v2 >dptr @ipc_blob n(1|0,2)
ipc 1 cuIpcCloseMemHandle dptr
cap 6 cuStreamBeginCapture_v2 stream n(2,2,2,1,0|3,-1)
cap 1 cuStreamBeginCapture stream
cap 1 cuStreamBeginCaptureToGraph stream graph @deps @edge_data @deps_count n(0,1,2|3)
cap 2 cuThreadExchangeStreamCaptureMode @mode
cap 6 cuStreamEndCapture stream >=graph
cap 4 cuStreamIsCapturing ?stream >I
cap 2 cuStreamGetCaptureInfo_v2 ?stream >I >x >=graph >x >Q
cap 1 cuStreamGetCaptureInfo_v3 ?stream >I >x >=graph >x >x >Q
cap 1 cuStreamGetCaptureInfo ?stream >I >x
cap 1 cuStreamUpdateCaptureDependencies_v2 stream @deps @edge_data @deps_count n(0,1|2)
cap 1 cuStreamUpdateCaptureDependencies stream @deps @deps_count n(0,1|2)
graph 4 cuGraphCreate >graph n(0|1,-1)
graph 1 cuGraphDestroy ~graph
graph 3 cuGraphClone >graph graph
graph 2 cuGraphNodeFindInClone >=node node graph
graph 4 cuGraphNodeGetType node >I
graph 3 cuGraphGetNodes graph @nodes_out
graph 3 cuGraphGetRootNodes graph @nodes_out
graph 1 cuGraphGetEdges graph @edges_out
graph 2 cuGraphGetEdges_v2 graph @edges_v2_out
graph 1 cuGraphNodeGetDependencies node @nodes_out
graph 2 cuGraphNodeGetDependencies_v2 node @nodes_v2_out
graph 1 cuGraphNodeGetDependentNodes node @nodes_out
graph 2 cuGraphNodeGetDependentNodes_v2 node @nodes_v2_out
graph 1 cuGraphAddDependencies graph @one_node @one_node n(1|0)
graph 3 cuGraphAddDependencies_v2 graph @one_node @one_node @edge_data n(1|0)
graph 1 cuGraphRemoveDependencies graph @one_node @one_node n(1|0)
graph 2 cuGraphRemoveDependencies_v2 graph @one_node @one_node @edge_data n(1|0)
graph 2 cuGraphDestroyNode ~node
graph 1 cuGraphDebugDotPrint graph @dot_path n(0,1|-1)
gnode 4 cuGraphAddEmptyNode >node graph @deps @deps_count
gnode 4 cuGraphAddMemsetNode >node graph @deps @deps_count @memset_params ?ctx
gnode 3 cuGraphAddMemcpyNode >node graph @deps @deps_count @copy3d ?ctx
gnode 3 cuGraphAddHostNode >node graph @deps @deps_count @host_params
gnode 2 cuGraphAddChildGraphNode >node graph @deps @deps_count graph
gnode 2 cuGraphAddEventRecordNode >node graph @deps @deps_count event
gnode 2 cuGraphAddEventWaitNode >node graph @deps @deps_count event
gnode 3 cuGraphAddKernelNode_v2 >node graph @deps @deps_count @kernel_params
gnode 3 cuGraphAddMemAllocNode @node_and_alloc
gnode 2 cuGraphAddMemFreeNode >node graph @deps @deps_count @graph_ptr
gnode 2 cuGraphAddBatchMemOpNode >node graph @deps @deps_count @memop_params
gnode 6 cuGraphAddNode_v2 >node graph @deps @edge_data @deps_count @node_params
gnode 2 cuGraphAddNode >node graph @deps @deps_count @node_params
gnode 2 cuGraphNodeSetParams node @node_params
gnode 2 cuGraphKernelNodeGetParams_v2 @node:kernel @kernel_out
gnode 1 cuGraphKernelNodeSetParams_v2 @node:kernel @kernel_params
gnode 1 cuGraphKernelNodeGetAttribute @node:kernel @stream_attribute
gnode 1 cuGraphKernelNodeSetAttribute @node:kernel @set_stream_attribute
gnode 1 cuGraphKernelNodeCopyAttributes @node:kernel @node:kernel
gnode 2 cuGraphMemcpyNodeGetParams @node:memcpy @memcpy_out
gnode 1 cuGraphMemcpyNodeSetParams @node:memcpy @copy3d
gnode 3 cuGraphMemsetNodeGetParams @node:memset @memset_out
gnode 2 cuGraphMemsetNodeSetParams @node:memset @memset_params
gnode 2 cuGraphHostNodeGetParams @node:host @host_out
gnode 1 cuGraphHostNodeSetParams @node:host @host_params
gnode 2 cuGraphChildGraphNodeGetGraph @node:child >=graph
gnode 2 cuGraphEventRecordNodeGetEvent @node:record >=event
gnode 1 cuGraphEventRecordNodeSetEvent @node:record event
gnode 2 cuGraphEventWaitNodeGetEvent @node:wait >=event
gnode 1 cuGraphEventWaitNodeSetEvent @node:wait event
gnode 1 cuGraphBatchMemOpNodeGetParams @node:memop @memop_out
gnode 1 cuGraphBatchMemOpNodeSetParams @node:memop @memop_params
gnode 2 cuGraphMemAllocNodeGetParams @node:alloc @alloc_node_out
gnode 2 cuGraphMemFreeNodeGetParams @node:free >=dptr
gnode 2 cuDeviceGraphMemTrim dev
gnode 2 cuDeviceGetGraphMemAttribute dev n(0,1,2,3|4,-1) >x
gnode 2 cuDeviceSetGraphMemAttribute dev n(1,3|0,2,4) @zero_io
gnode 3 cuGraphConditionalHandleCreate >cond graph ?ctx n(0|0) n(0,1|2)
gexec 5 cuGraphInstantiateWithFlags >exec graph n(0,1,2,8|4,16,-1)
gexec 2 cuGraphInstantiateWithParams >exec graph @instantiate_params
gexec 1 cuGraphInstantiate_v2 >exec graph >=node >c64 n(64|0)
gexec 3 cuGraphExecGetFlags exec >Q
gexec 2 cuGraphExecKernelNodeSetParams_v2 exec @node:kernel @kernel_params
gexec 2 cuGraphExecMemcpyNodeSetParams exec @node:memcpy @copy3d ctx
gexec 3 cuGraphExecMemsetNodeSetParams exec @node:memset @memset_params ctx
gexec 2 cuGraphExecHostNodeSetParams exec @node:host @host_params
gexec 1 cuGraphExecChildGraphNodeSetParams exec @node:child graph
gexec 1 cuGraphExecEventRecordNodeSetEvent exec @node:record event
gexec 1 cuGraphExecEventWaitNodeSetEvent exec @node:wait event
gexec 1 cuGraphExecBatchMemOpNodeSetParams exec @node:memop @memop_params
gexec 2 cuGraphExecNodeSetParams exec node @node_params
gexec 2 cuGraphNodeSetEnabled exec node n(0,1|2)
gexec 2 cuGraphNodeGetEnabled exec node >I
gexec 3 cuGraphUpload exec ?stream
gexec 4 cuGraphLaunch exec ?stream
gexec 3 cuGraphExecUpdate_v2 exec graph @update_out
gexec 1 cuGraphExecUpdate exec graph >=node >I
gexec 2 cuGraphExecDestroy ~exec
uobj 3 cuUserObjectCreate >uobj n(0|0) @callback n(1,1,2,3|0,-1) n(1|0,2)
uobj 2 cuUserObjectRetain uobj n(1,2|0,-1)
uobj 2 cuUserObjectRelease uobj n(1,1|0,-1,5)
uobj 3 cuGraphRetainUserObject graph uobj n(1,2|0,-1) n(0,1|2)
uobj 2 cuGraphReleaseUserObject graph uobj n(1|0,5)
occ 5 cuOccupancyMaxActiveBlocksPerMultiprocessor >i fun @block_size @shared
occ 3 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags >i fun @block_size @shared n(0,1|2,-1)
occ 4 cuOccupancyMaxPotentialBlockSize >i >i fun @b2d @shared n(0,32,100,256,1024|-1,4096)
occ 2 cuOccupancyMaxPotentialBlockSizeWithFlags >i >i fun @b2d @shared n(0,32,100,256,1024|-1,4096) n(0,1|2)
occ 4 cuOccupancyAvailableDynamicSMemPerBlock >Q fun n(1,2,4,8,16,32|0,-1,33,100) n(32,64,128,256,1024|0,-1,1025)
occ 3 cuOccupancyMaxPotentialClusterSize >i fun @launch_config
occ 3 cuOccupancyMaxActiveClusters >i fun @launch_config
launch 6 cuLaunchKernel @fun_launch ?stream @launch_params n(0|0)
launch 2 cuLaunchCooperativeKernel @fun_launch ?stream @launch_params
launch 4 cuLaunchKernelEx @launch_config fun @launch_params n(0|0)
launch 1 cuLaunch fun
launch 1 cuLaunchGrid fun n(1|0,-1) n(1|0)
launch 1 cuLaunchGridAsync fun n(1|0) n(1|0) ?stream
memop 3 cuStreamWriteValue32_v2 ?stream @memop_ptr n(0,1,7|7) n(0,1|2,4)
memop 2 cuStreamWriteValue64_v2 ?stream @memop_ptr n(0,1,7|7) n(0,1|2,4)
memop 2 cuStreamWaitValue32_v2 ?stream @memop_ptr n(0|0) n(0|4,-1)
memop 2 cuStreamWaitValue64_v2 ?stream @memop_ptr n(0|0) n(0|4,-1)
memop 2 cuStreamBatchMemOp_v2 ?stream n(1|0) @memops n(0|1)
prof 1 cuProfilerStart
prof 1 cuProfilerStop
prof 1 cuProfilerInitialize @text @text n(0,1|7)
proc 5 cuGetProcAddress_v2 @symbol >x n(13000,12000,11000,12080,3020,2000,7050|0,99999,-1,14000) n(0,1,2|4,3,-1) >I
proc 2 cuCoredumpGetAttribute @coredump
proc 2 cuCoredumpGetAttributeGlobal @coredump
proc 1 cuCoredumpSetAttribute @set_coredump
proc 1 cuCoredumpSetAttributeGlobal @set_coredump
proc 1 cuCheckpointProcessGetState n(-1,0|999999) >I
proc 1 cuCheckpointProcessGetRestoreThreadId n(-1,0|999999) >i
proc 2 cuDeviceRegisterAsyncNotification dev @callback n(0|0) >note
proc 1 cuDeviceUnregisterAsyncNotification dev ~note
proc 2 cuLogsRegisterCallback @callback n(0|0) >log
proc 1 cuLogsUnregisterCallback ~log
proc 1 cuLogsCurrent >x4 n(0|1)
proc 1 cuLogsDumpToMemory n(0|0) >X4096 @log_size n(0|1)
ext 1 cuImportExternalMemory >x @ext_memory
ext 1 cuImportExternalSemaphore >x @ext_semaphore
ext 1 cuDestroyExternalMemory n(0|0)
ext 1 cuDestroyExternalSemaphore n(0|0)
ext 1 cuGraphicsUnregisterResource n(0|0)
ext 1 cuGraphicsMapResources n(0|1) n(0|0) ?stream
green 3 cuDeviceGetDevResource dev @resource_get n(1|0,2,7)
green 2 cuCtxGetDevResource ctx @resource_get n(1|0,2,7)
green 2 cuGreenCtxGetDevResource gctx @resource_get n(1|0,2,7)
green 4 cuDevSmResourceSplitByCount @split
green 3 cuDevResourceGenerateDesc >desc @resources n(1|0,2)
green 4 cuGreenCtxCreate >gctx desc dev n(1|0,2)
green 2 cuGreenCtxDestroy ~gctx
green 3 cuCtxFromGreenCtx >=ctx gctx
green 2 cuGreenCtxRecordEvent gctx event
green 2 cuGreenCtxWaitEvent gctx event
green 2 cuStreamGetGreenCtx ?stream >=gctx
green 3 cuGreenCtxStreamCreate >stream gctx n(1|0,2) n(0,-1,5|99)
green 2 cuGreenCtxGetId gctx >x
"""


@dataclass(frozen=True)
class Function:
    """One line of the table."""

    group: str
    weight: int
    symbol: str
    parameters: tuple[str, ...]


FUNCTIONS = tuple(
    Function(parts[0], int(parts[1]), parts[2], tuple(parts[3:]))
    for parts in (line.split() for line in TABLE.strip().splitlines())
)

_CORE = {"ctx": 4, "dev": 2, "mem": 3, "copy": 2, "memset": 2, "stream": 3, "event": 3, "mod": 3, "lib": 3, "fun": 3, "link": 2}  # fmt: skip
#: Themes with their share of the programs and the weights of their groups; "core" has the functions of the first release.
THEMES: dict[str, tuple[int, dict[str, int]]] = {
    "core": (26, _CORE),
    "pools": (9, {"pool": 14, "stream": 1, "event": 1, "memset": 1, "copy": 1, "mem": 1, "ctx": 1, "ipc": 1}),
    "vmm": (8, {"vmm": 14, "pool": 1, "mem": 1, "memset": 1, "copy": 1, "ctx": 1}),
    "managed": (6, {"mng": 14, "stream": 1, "mem": 1, "copy": 1, "ctx": 1}),
    "arrays": (9, {"arr": 12, "tex": 8, "mem": 1, "ctx": 1}),
    "graphs": (14, {"graph": 10, "gnode": 10, "gexec": 8, "uobj": 3, "event": 1, "stream": 1, "mem": 1, "ctx": 1}),
    "capture": (9, {"cap": 12, "graph": 4, "stream": 3, "event": 4, "memset": 3, "copy": 3, "gexec": 3, "memop": 1, "launch": 1, "pool": 2, "ctx": 1, "mem": 1}),
    "functions": (8, {"occ": 10, "launch": 8, "fun": 5, "lib": 2, "mod": 2, "ctx": 1}),
    "others": (7, {"green": 8, "memop": 5, "prof": 2, "proc": 8, "ipc": 4, "peer": 4, "batch": 3, "ext": 1, "dev": 2, "stream": 1, "event": 1, "mem": 1}),
    # of seeds from 50,000 and 150,000 on alone (generate.py), in two threads, behind gates that the program opens
    "order": (0, {"gate": 40, "stream": 5, "event": 5, "cap": 3, "gexec": 4, "graph": 1, "gnode": 3, "pool": 3, "memset": 3, "copy": 3, "mem": 2, "ctx": 1}),
    "mixed": (4, dict.fromkeys((*_CORE, "pool", "vmm", "mng", "arr", "tex", "ipc", "cap", "graph", "gnode", "gexec", "uobj", "green", "occ", "launch", "memop", "prof", "peer", "proc", "batch"), 2)),
}  # fmt: skip

#: What may wait for work behind a closed gate, which makes all further calls those of a program without gates.
WAITING = frozenset(
    "cuStreamSynchronize cuEventSynchronize cuCtxSynchronize cuCtxSynchronize_v2 cuMemcpy cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 "
    "cuMemcpyDtoD_v2 cuMemcpyPeer cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy3D_v2 cuMemcpy3DPeer cuMemFree_v2 "
    "cuMemFreeHost cuMemHostUnregister cuMemPoolDestroy cuCtxDestroy_v2 cuCtxDetach cuDevicePrimaryCtxReset_v2 "
    "cuDevicePrimaryCtxRelease_v2 cuDeviceGraphMemTrim cuMemPoolTrimTo".split()
)
