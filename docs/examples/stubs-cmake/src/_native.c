/* A module that asks the CUDA runtime and NVRTC. It is linked with stubs, so it imports on a machine without CUDA. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* a real project includes cuda_runtime_api.h and nvrtc.h */
extern int cudaGetDeviceCount(int *count);
extern int cudaRuntimeGetVersion(int *version);
extern const char *cudaGetErrorString(int error);
extern int nvrtcVersion(int *major, int *minor);

static PyObject *runtime(PyObject *self, PyObject *unused)
{
  int version = 0, count = 0;
  (void)self;
  (void)unused;
  int result = cudaRuntimeGetVersion(&version);
  cudaGetDeviceCount(&count);
  return Py_BuildValue("iiis", result, version, count, cudaGetErrorString(result));
}

static PyObject *compiler(PyObject *self, PyObject *unused)
{
  int major = 0, minor = 0;
  (void)self;
  (void)unused;
  int result = nvrtcVersion(&major, &minor);
  return Py_BuildValue("iii", result, major, minor);
}

static PyMethodDef methods[] = {
    {"runtime", runtime, METH_NOARGS, "Result, version, number of devices and error text of the CUDA runtime."},
    {"compiler", compiler, METH_NOARGS, "Result, major and minor version of NVRTC."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
  return PyModule_Create(&module);
}
