// Sums a function of each element: every block leaves one partial sum, the host adds those.
extern "C" __device__ float transform(float x);
extern "C" __device__ float combine(float a, float b);

extern "C" __global__ void reduction(const float* x, float* partial, int n) {
  __shared__ float shared[256];
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum = combine(sum, transform(x[i]));
  shared[threadIdx.x] = sum;
  for (int width = 128; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + width]);
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = shared[0];
}
