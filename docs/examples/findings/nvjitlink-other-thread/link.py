import sys
from threading import Thread

from cuda.bindings import nvjitlink

PTX = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry f() { ret; }\n"
print("nvJitLink", *nvjitlink.version())
for number in 1, 2, 3:
    handle = nvjitlink.create(1, ["-arch=sm_90"])
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, PTX, len(PTX), "f")
    link = Thread(target=nvjitlink.complete, args=(handle,))
    if sys.argv[1:] == ["here"]:
        link.run()
    else:
        link.start()
        link.join()
    print("linked:", number, flush=True)
    nvjitlink.destroy(handle)
