"""Route every look-up of this process through the guard rails, before a library makes its first look-up."""

from cuda import pathfinder

from pytest_cudalink import guardrails

routing = guardrails.install()
for name in routing.not_routed:
    print("not routed:", name)
try:
    pathfinder.load_nvidia_dynamic_lib("nvrtc")
    pathfinder.find_nvidia_header_directory("cudart")
except guardrails.CompatibilityCheckError as error:
    print(error)  # both items, their versions and witnesses, the rule, and the command that repairs it
else:
    for item in routing.guard.remembered:
        print(item.label, "CUDA", item.version)
