/* Streams: flags, priorities, what they say of themselves, special handles. */
#include "ask.h"

static void creating(void) {
  CUstream s;
  int least = 77, greatest = 77;
  for (int flags = 0; flags <= 4; flags++) ASK(W("flags %d", flags), cuStreamCreate(&s, flags));
  ASK("priorities", cuCtxGetStreamPriorityRange(&least, &greatest), "%d %d", least, greatest);
  ASK("least only", cuCtxGetStreamPriorityRange(&least, NULL));
  ASK("greatest only", cuCtxGetStreamPriorityRange(NULL, &greatest));
  ASK("neither", cuCtxGetStreamPriorityRange(NULL, NULL));
  for (int p = -8; p <= 3; p++) {
    int got = 77;
    ASK(W("priority %d", p), cuStreamCreateWithPriority(&s, 1, p));
    ASK(W("priority of %d", p), cuStreamGetPriority(s, &got), "%d", got);
  }
  ASK("priority with flags 2", cuStreamCreateWithPriority(&s, 2, 0));
  RISK("into NULL", cuStreamCreate(NULL, 0));
  RISK("with priority into NULL", cuStreamCreateWithPriority(NULL, 0, 0));
  RISK("destroy NULL", cuStreamDestroy(NULL));
  RISK("destroy the legacy stream", cuStreamDestroy(CU_STREAM_LEGACY));
  RISK("destroy the thread's stream", cuStreamDestroy(CU_STREAM_PER_THREAD));
  ALONE("destroy twice", (cuStreamCreate(&s, 0), cuStreamDestroy(s), cuStreamDestroy(s)));
  ALONE("query a destroyed one", (cuStreamCreate(&s, 0), cuStreamDestroy(s), cuStreamQuery(s)));
}

static void telling(void) {
  CUstream all[4] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, NULL};
  const char *names[] = {"NULL", "legacy", "per thread", "made"};
  DO(cuStreamCreate(&all[3], 1));
  unsigned long long ids[4];
  for (int i = 0; i < 4; i++) {
    CUstream s = all[i];
    unsigned flags = 77;
    int priority = 77;
    CUcontext c = NULL;
    CUgreenCtx green = (CUgreenCtx)7;
    CUdevice device = 77;
    CUstreamCaptureStatus status = 77;
    ASK(W("flags of %s", names[i]), cuStreamGetFlags(s, &flags), "%u", flags);
    ASK(W("priority of %s", names[i]), cuStreamGetPriority(s, &priority), "%d", priority);
    ASK(W("context of %s", names[i]), cuStreamGetCtx(s, &c), "%d", c == context);
    ASK(W("contexts of %s", names[i]), cuStreamGetCtx_v2(s, &c, &green), "%d %d", c == context, green == NULL);
    ASK(W("device of %s", names[i]), cuStreamGetDevice(s, &device), "%d", device);
    ASK(W("id of %s", names[i]), cuStreamGetId(s, &ids[i]), "%d", ids[i] != 0);
    ASK(W("query of %s", names[i]), cuStreamQuery(s));
    ASK(W("synchronize %s", names[i]), cuStreamSynchronize(s));
    ASK(W("capturing of %s", names[i]), cuStreamIsCapturing(s, &status), "%d", status);
  }
  SAY("ids", "%d %d %d", ids[0] == ids[1], ids[1] == ids[2], ids[2] == ids[3]);
  RISK("flags into NULL", cuStreamGetFlags(all[3], NULL));
  RISK("priority into NULL", cuStreamGetPriority(all[3], NULL));
  RISK("context into NULL", cuStreamGetCtx(all[3], NULL));
  RISK("device into NULL", cuStreamGetDevice(all[3], NULL));
  RISK("id into NULL", cuStreamGetId(all[3], NULL));
  RISK("capturing into NULL", cuStreamIsCapturing(all[3], NULL));
  CUcontext none;
  DO(cuCtxPopCurrent(&none));
  unsigned flags;
  CUdevice device = 77;
  ASK("flags of a stream without a context", cuStreamGetFlags(all[3], &flags));
  ASK("flags of NULL without a context", cuStreamGetFlags(NULL, &flags));
  ASK("device of a stream without a context", cuStreamGetDevice(all[3], &device), "%d", device);
  ASK("query of a stream without a context", cuStreamQuery(all[3]));
  ASK("create without a context", cuStreamCreate(&all[0], 0));
  ASK("priorities without a context", cuCtxGetStreamPriorityRange(NULL, NULL));
}

static void attributes(void) {
  CUstream s;
  DO(cuStreamCreate(&s, 1));
  CUstreamAttrValue v, back;
  for (int a = 0; a <= 17; a++) {
    memset(&v, 0xee, sizeof v);
    ASK(W("get %d", a), cuStreamGetAttribute(s, a, &v), "%d", v.priority == (int)0xeeeeeeee ? -1 : v.priority);
    SET(v);
    ASK(W("set %d to zeros", a), cuStreamSetAttribute(s, a, &v));
  }
  for (int p = -7; p <= 2; p++) {
    SET(v);
    v.priority = p;
    ASK(W("priority %d", p), cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_PRIORITY, &v));
    ASK(W("priority now %d", p), cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_PRIORITY, &back), "%d", back.priority);
  }
  for (int p = 0; p <= 5; p++) {
    SET(v);
    v.syncPolicy = p;
    ASK(W("synchronization policy %d", p), cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
    ASK(W("synchronization policy now %d", p),
        cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &back), "%d", back.syncPolicy);
  }
  for (int p = 0; p <= 3; p++) {
    SET(v);
    v.memSyncDomain = p;
    ASK(W("domain %d", p), cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &v));
  }
  int domains = 77;
  ASK("number of domains", cuDeviceGetAttribute(&domains, CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 0), "%d", domains);
  for (int d = 0; d <= 5; d++)
    for (int r = 0; r <= 5; r += 5) {
      SET(v);
      v.memSyncDomainMap.default_ = d, v.memSyncDomainMap.remote = r;
      ASK(W("map of domains %d %d", d, r), cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &v));
    }
  RISK("get into NULL", cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_PRIORITY, NULL));
  RISK("set from NULL", cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_PRIORITY, NULL));
  SET(v);
  ASK("priority of the NULL stream", cuStreamSetAttribute(NULL, CU_STREAM_ATTRIBUTE_PRIORITY, &v));
  ASK("get of the NULL stream", cuStreamGetAttribute(NULL, CU_STREAM_ATTRIBUTE_PRIORITY, &v), "%d", v.priority);
  CUstream t;
  DO(cuStreamCreate(&t, 1));
  SET(v);
  v.syncPolicy = 3;
  DO(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
  ASK("copy", cuStreamCopyAttributes(t, s));
  ASK("copied policy", cuStreamGetAttribute(t, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &back), "%d",
      back.syncPolicy);
  ASK("copied priority", cuStreamGetAttribute(t, CU_STREAM_ATTRIBUTE_PRIORITY, &back), "%d", back.priority);
  ASK("copy to itself", cuStreamCopyAttributes(s, s));
  ASK("copy to NULL", cuStreamCopyAttributes(NULL, s));
  ASK("copy from NULL", cuStreamCopyAttributes(s, NULL));
}

static void windows(void) {
  CUstream s;
  CUdeviceptr d = 0;
  CUstreamAttrValue v, good, back;
  int largest = 0;
  DO(cuStreamCreate(&s, 1));
  DO(cuMemAlloc(&d, 4 * MIB));
  ASK("largest window", cuDeviceGetAttribute(&largest, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 0), "%d",
      largest);
  SET(good);
  good.accessPolicyWindow.base_ptr = (void *)d, good.accessPolicyWindow.num_bytes = MIB,
  good.accessPolicyWindow.hitRatio = 0.5f;
  good.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING,
  good.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_STREAMING;
  ASK("plain", cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &good));
  SET(back);
  ASK("get", cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &back), "%zu %.2f %d %d",
      back.accessPolicyWindow.num_bytes, (double)back.accessPolicyWindow.hitRatio, back.accessPolicyWindow.hitProp,
      back.accessPolicyWindow.missProp);
  float ratios[] = {-0.5f, 0, 1, 1.5f};
  for (int i = 0; i < 4; i++) {
    v = good, v.accessPolicyWindow.hitRatio = ratios[i];
    ASK(W("hit ratio %.1f", (double)ratios[i]), cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
  }
  for (int hit = 0; hit <= 3; hit++)
    for (int miss = 0; miss <= 3; miss++) {
      v = good, v.accessPolicyWindow.hitProp = hit, v.accessPolicyWindow.missProp = miss;
      ASK(W("hit %d, miss %d", hit, miss), cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
    }
  size_t sizes[] = {0, 1, 8 * MIB, largest, (size_t)largest + 1};
  for (int i = 0; i < 5; i++) {
    v = good, v.accessPolicyWindow.num_bytes = sizes[i];
    ASK(W("window of %zu", sizes[i]), cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
  }
  v = good, v.accessPolicyWindow.base_ptr = NULL;
  ASK("base NULL", cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
  v = good, v.accessPolicyWindow.base_ptr = (void *)(d + 3);
  ASK("an odd base", cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
}

static void values(void) {
  CUstream s;
  CUdeviceptr d = 0;
  void *pin, *plain = malloc(4096);
  DO(cuStreamCreate(&s, 1));
  DO(cuMemAlloc(&d, 4096));
  DO(cuMemAllocHost(&pin, 4096));
  for (int flags = 0; flags <= 3; flags++) ASK(W("write with flags %d", flags), cuStreamWriteValue32(s, d, 5, flags));
  ASK("write to an odd address", cuStreamWriteValue32(s, d + 1, 5, 0));
  ASK("write 64 to an address of 4", cuStreamWriteValue64(s, d + 4, 5, 0));
  ASK("write 64", cuStreamWriteValue64(s, d + 8, 5, 0));
  ASK("write to pinned memory", cuStreamWriteValue32(s, (CUdeviceptr)pin, 6, 0));
  ASK("write to the heap", cuStreamWriteValue32(s, (CUdeviceptr)plain, 6, 0));
  ASK("write to 0", cuStreamWriteValue32(s, 0, 6, 0));
  ASK("write beyond", cuStreamWriteValue32(s, d + 4096, 6, 0));
  DO(cuStreamSynchronize(s));
  SAY("pinned memory", "%d", *(int *)pin);
  int kinds[] = {0, 1, 2, 3, 4, 8, 1 << 30, (1 << 30) | 1};
  DO(cuStreamWriteValue32(s, d, 5, 0));
  for (int i = 0; i < 8; i++)
    if (kinds[i] != 3)
      ASK(W("wait with flags %d", kinds[i]), cuStreamWaitValue32(s, d, kinds[i] == 2 ? 4 : 5, kinds[i]));
  ASK("wait at an odd address", cuStreamWaitValue32(s, d + 2, 0, 0));
  ASK("wait 64 at an address of 4", cuStreamWaitValue64(s, d + 4, 0, 0));
  ASK("wait at 0", cuStreamWaitValue32(s, 0, 0, 0));
  CUstreamBatchMemOpParams op[2];
  SET(op);
  op[0].operation = op[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op[0].writeValue.address = op[1].writeValue.address = d;
  ASK("a batch", cuStreamBatchMemOp(s, 2, op, 0));
  ASK("an empty batch", cuStreamBatchMemOp(s, 0, op, 0));
  ASK("a batch with flags 1", cuStreamBatchMemOp(s, 1, op, 1));
  op[1].operation = CU_STREAM_MEM_OP_BARRIER;
  for (int flags = 0; flags <= 2; flags++) {
    op[1].memoryBarrier.flags = flags;
    ASK(W("a barrier with flags %d", flags), cuStreamBatchMemOp(s, 2, op, 0));
  }
  SET(op);
  op[0].operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
  ASK("a flush of remote writes", cuStreamBatchMemOp(s, 1, op, 0));
  op[0].operation = 77;
  ASK("operation 77", cuStreamBatchMemOp(s, 1, op, 0));
  RISK("a batch from NULL", cuStreamBatchMemOp(s, 1, NULL, 0));
  ASK("in the legacy stream", cuStreamWriteValue32(CU_STREAM_LEGACY, d, 1, 0));
  DO(cuCtxSynchronize());
}

CASES RUN(creating) RUN(telling) RUN(attributes) RUN(windows) RUN(values) END
