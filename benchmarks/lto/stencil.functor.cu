extern "C" __device__ float conductance(float difference) { return 1.0f / (1.0f + 4.0f * difference * difference); }
