extern "C" __device__ float transform(float x) { return x * x; }

extern "C" __device__ float combine(float a, float b) { return a + b; }
