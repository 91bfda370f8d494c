extern "C" __device__ float visit(const float* table, int index, float sum) {
  float value = table[index];
  return value > 0.0f ? sum + value : sum - 0.5f * value;
}
