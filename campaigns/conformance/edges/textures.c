/* Texture and surface objects and references. */
#include "ask.h"

static CUarray a;
static CUdeviceptr d;
static CUmipmappedArray m;
static void make(void) {
  CUDA_ARRAY3D_DESCRIPTOR p;
  SET(p);
  p.Width = p.Height = 16, p.Format = CU_AD_FORMAT_FLOAT, p.NumChannels = 1, p.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  DO(cuArray3DCreate(&a, &p));
  DO(cuMipmappedArrayCreate(&m, &p, 3));
  DO(cuMemAlloc(&d, 65536));
}
static CUDA_RESOURCE_DESC of_array(void) {
  CUDA_RESOURCE_DESC r;
  SET(r);
  r.resType = CU_RESOURCE_TYPE_ARRAY, r.res.array.hArray = a;
  return r;
}
static CUDA_RESOURCE_DESC of_line(size_t size, int format, int channels) {
  CUDA_RESOURCE_DESC r;
  SET(r);
  r.resType = CU_RESOURCE_TYPE_LINEAR, r.res.linear.devPtr = d, r.res.linear.format = format,
  r.res.linear.numChannels = channels, r.res.linear.sizeInBytes = size;
  return r;
}
static CUDA_RESOURCE_DESC of_plane(size_t pitch, size_t w, size_t h) {
  CUDA_RESOURCE_DESC r;
  SET(r);
  r.resType = CU_RESOURCE_TYPE_PITCH2D, r.res.pitch2D.devPtr = d, r.res.pitch2D.format = CU_AD_FORMAT_FLOAT,
  r.res.pitch2D.numChannels = 1;
  r.res.pitch2D.width = w, r.res.pitch2D.height = h, r.res.pitch2D.pitchInBytes = pitch;
  return r;
}

static void objects(void) {
  make();
  CUtexObject t = 7;
  CUDA_TEXTURE_DESC x, good;
  CUDA_RESOURCE_DESC r = of_array(), back;
  SET(good);
  ASK("plain", cuTexObjectCreate(&t, &r, &good, NULL), "%d", t != 7);
  SET(back);
  ASK("its resource", cuTexObjectGetResourceDesc(&back, t), "%d %d", back.resType, back.res.array.hArray == a);
  for (int mode = 0; mode <= 4; mode++) {
    x = good, x.addressMode[0] = mode;
    ASK(W("address mode %d", mode), cuTexObjectCreate(&t, &r, &x, NULL));
    x.flags = CU_TRSF_NORMALIZED_COORDINATES;
    ASK(W("address mode %d, normalized", mode), cuTexObjectCreate(&t, &r, &x, NULL));
    memset(&x, 0xee, sizeof x);
    ASK(W("description of address mode %d", mode), cuTexObjectGetTextureDesc(&x, t), "%d %d %u", x.addressMode[0],
        x.filterMode, x.flags);
    x = good, x.filterMode = mode;
    ASK(W("filter mode %d", mode), cuTexObjectCreate(&t, &r, &x, NULL));
    x = good, x.mipmapFilterMode = mode;
    ASK(W("mipmap filter mode %d", mode), cuTexObjectCreate(&t, &r, &x, NULL));
  }
  unsigned flags[] = {1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80};
  for (int i = 0; i < 8; i++) {
    x = good, x.flags = flags[i];
    ASK(W("flags %u", flags[i]), cuTexObjectCreate(&t, &r, &x, NULL));
  }
  int anisotropies[] = {1, 16, 17, 100};
  for (int i = 0; i < 4; i++) {
    x = good, x.maxAnisotropy = anisotropies[i];
    ASK(W("anisotropy %d", anisotropies[i]), cuTexObjectCreate(&t, &r, &x, NULL));
  }
  x = good, x.reserved[0] = 1;
  ASK("reserved of the texture", cuTexObjectCreate(&t, &r, &x, NULL));
  for (int type = -1; type <= 4; type++) {
    r = of_array(), r.resType = type;
    if (type == 1) r.res.mipmap.hMipmappedArray = m;
    RISK(W("resource type %d", type), cuTexObjectCreate(&t, &r, &good, NULL));
  }
  r = of_array(), r.flags = 1;
  ASK("flags of the resource", cuTexObjectCreate(&t, &r, &good, NULL));
  size_t sizes[] = {0, 3, 4, 6, 65536, 65540, 1ul << 31};
  for (int i = 0; i < 7; i++) {
    r = of_line(sizes[i], CU_AD_FORMAT_FLOAT, 1);
    ASK(W("line of %zu bytes", sizes[i]), cuTexObjectCreate(&t, &r, &good, NULL));
  }
  r = of_line(64, CU_AD_FORMAT_FLOAT, 3);
  ASK("line of 3 channels", cuTexObjectCreate(&t, &r, &good, NULL));
  r = of_line(64, 0, 1);
  ASK("line of format 0", cuTexObjectCreate(&t, &r, &good, NULL));
  r = of_line(64, CU_AD_FORMAT_FLOAT, 1), r.res.linear.devPtr = d + 16;
  ASK("line that is not aligned", cuTexObjectCreate(&t, &r, &good, NULL));
  r.res.linear.devPtr = 0;
  ASK("line at 0", cuTexObjectCreate(&t, &r, &good, NULL));
  x = good, x.filterMode = 1;
  r = of_line(64, CU_AD_FORMAT_FLOAT, 1);
  ASK("line with a linear filter", cuTexObjectCreate(&t, &r, &x, NULL));
  size_t planes[][3] = {{64, 16, 16}, {16, 16, 16}, {48, 8, 4},     {32, 8, 4},    {512, 16, 16},
                        {512, 16, 0}, {512, 0, 16}, {512, 16, 200}, {512, 129, 4}, {0, 16, 16}};
  for (int i = 0; i < 10; i++) {
    r = of_plane(planes[i][0], planes[i][1], planes[i][2]);
    ASK(W("plane with pitch %zu, %zu by %zu", planes[i][0], planes[i][1], planes[i][2]),
        cuTexObjectCreate(&t, &r, &good, NULL));
  }
  r = of_array();
  CUDA_RESOURCE_VIEW_DESC v;
  for (int format = 0; format <= 0x23; format++) {
    SET(v);
    v.format = format, v.width = 16, v.height = 16;
    ASK(W("view of format %d", format), cuTexObjectCreate(&t, &r, &good, &v));
  }
  SET(v);
  v.format = CU_RES_VIEW_FORMAT_FLOAT_1X32, v.width = 8, v.height = 16;
  ASK("view of another width", cuTexObjectCreate(&t, &r, &good, &v));
  v.width = 16, v.lastMipmapLevel = 1;
  ASK("view of a second level", cuTexObjectCreate(&t, &r, &good, &v));
  v.lastMipmapLevel = 0, v.reserved[0] = 1;
  ASK("reserved of the view", cuTexObjectCreate(&t, &r, &good, &v));
  DO(cuTexObjectCreate(&t, &r, &good, NULL));
  ASK("its view", cuTexObjectGetResourceViewDesc(&v, t));
  ASK("destroy", cuTexObjectDestroy(t));
  ALONE("destroy again", cuTexObjectDestroy(t));
  ASK("destroy 0", cuTexObjectDestroy(0));
  ASK("destroy a number", cuTexObjectDestroy(123456789));
  ASK("resource of 0", cuTexObjectGetResourceDesc(&back, 0));
  r.res.array.hArray = NULL;
  RISK("array NULL", cuTexObjectCreate(&t, &r, &good, NULL));
  r = of_array();
  RISK("into NULL", cuTexObjectCreate(NULL, &r, &good, NULL));
  RISK("resource NULL", cuTexObjectCreate(&t, NULL, &good, NULL));
  RISK("texture NULL", cuTexObjectCreate(&t, &r, NULL, NULL));
  RISK("resource into NULL", cuTexObjectGetResourceDesc(NULL, t));
}

static void surfaces(void) {
  make();
  CUsurfObject s = 7;
  CUDA_RESOURCE_DESC r = of_array(), back;
  ASK("plain", cuSurfObjectCreate(&s, &r), "%d", s != 7);
  SET(back);
  ASK("its resource", cuSurfObjectGetResourceDesc(&back, s), "%d %d", back.resType, back.res.array.hArray == a);
  r.flags = 1;
  ASK("flags", cuSurfObjectCreate(&s, &r));
  r = of_line(64, CU_AD_FORMAT_FLOAT, 1);
  ASK("a line", cuSurfObjectCreate(&s, &r));
  r = of_plane(512, 16, 16);
  ASK("a plane", cuSurfObjectCreate(&s, &r));
  SET(r);
  r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, r.res.mipmap.hMipmappedArray = m;
  ASK("a mipmapped array", cuSurfObjectCreate(&s, &r));
  CUarray plain;
  CUDA_ARRAY_DESCRIPTOR p = {16, 16, CU_AD_FORMAT_FLOAT, 1};
  DO(cuArrayCreate(&plain, &p));
  r = of_array(), r.res.array.hArray = plain;
  ASK("an array that is not for surfaces", cuSurfObjectCreate(&s, &r));
  r = of_array();
  DO(cuSurfObjectCreate(&s, &r));
  ASK("destroy", cuSurfObjectDestroy(s));
  ALONE("destroy again", cuSurfObjectDestroy(s));
  ASK("destroy 0", cuSurfObjectDestroy(0));
  RISK("into NULL", cuSurfObjectCreate(NULL, &r));
  RISK("from NULL", cuSurfObjectCreate(&s, NULL));
}

static void references(void) {
  make();
  CUtexref t = NULL;
  size_t offset = 77;
  ASK("create", cuTexRefCreate(&t));
  ASK("set an address", cuTexRefSetAddress(&offset, t, d, 4096), "%zu", offset);
  ASK("set an address that is not aligned", cuTexRefSetAddress(&offset, t, d + 16, 4096), "%zu", offset);
  ASK("without an offset", cuTexRefSetAddress(NULL, t, d + 16, 4096));
  CUdeviceptr got = 0;
  ASK("get the address", cuTexRefGetAddress(&got, t), "%d", got == d);
  for (int f = 0; f <= 3; f++) {
    ASK(W("flags %d", 1 << f), cuTexRefSetFlags(t, 1 << f));
    ASK(W("filter %d", f), cuTexRefSetFilterMode(t, f));
    ASK(W("address mode %d", f), cuTexRefSetAddressMode(t, f, CU_TR_ADDRESS_MODE_CLAMP));
    ASK(W("channels %d", f), cuTexRefSetFormat(t, CU_AD_FORMAT_FLOAT, f));
  }
  ASK("set an array", cuTexRefSetArray(t, a, CU_TRSA_OVERRIDE_FORMAT));
  ASK("set an array without the flag", cuTexRefSetArray(t, a, 0));
  CUarray back = NULL;
  ASK("get the array", cuTexRefGetArray(&back, t), "%d", back == a);
  unsigned flags = 77;
  ASK("get the flags", cuTexRefGetFlags(&flags, t), "%u", flags);
  CUfilter_mode filter = 77;
  ASK("get the filter", cuTexRefGetFilterMode(&filter, t), "%d", filter);
  int channels = 77;
  CUarray_format format = 77;
  ASK("get the format", cuTexRefGetFormat(&format, &channels, t), "%d %d", format, channels);
  ASK("anisotropy 17", cuTexRefSetMaxAnisotropy(t, 17));
  ASK("destroy", cuTexRefDestroy(t));
  RISK("create into NULL", cuTexRefCreate(NULL));
  RISK("destroy NULL", cuTexRefDestroy(NULL));
}

CASES RUN(objects) RUN(surfaces) RUN(references) END
