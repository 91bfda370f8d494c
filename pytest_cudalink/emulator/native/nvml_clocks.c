/* Clocks, power, temperature and fans of an idle card. */
#include <stdio.h>
#include <time.h>

#include "nvml.h"

#include "nvml_fields.inc" /* fields, LAST_FIELD */

/* -- clocks, in MHz -- */

enum { GRAPHICS, SM, MEMORY, VIDEO, CLOCKS };

/* How far apart graphics clocks are (measured: test_idle_card). */
enum { STEP = 15 };

static unsigned most(unsigned clock) {
  unsigned graphics = (unsigned)cl_nvml_attribute(CLOCK_RATE) / 1000;
  if (clock == MEMORY) return (unsigned)cl_nvml_attribute(MEMORY_CLOCK_RATE) / 1000;
  return clock == VIDEO ? graphics * 781 / 1000 / STEP * STEP : graphics;
}

/* Memory keeps its clock; the others fall to their least (345 and 765 MHz of 1980 on an H100). */
static unsigned least(unsigned clock) {
  unsigned graphics = most(GRAPHICS);
  if (clock == MEMORY) return most(MEMORY);
  return graphics - graphics * (clock == VIDEO ? 62 : 83) / 100 / STEP * STEP;
}

/* A clock that only the first `supported` types have. */
static Result give_clock(Device device, unsigned clock, unsigned *out, unsigned supported, unsigned value) {
  CHECK(device, out && clock < CLOCKS);
  return clock < supported ? cl_nvml_give(device, out, value) : NOT_SUPPORTED;
}

EXPORT Result nvmlDeviceGetClockInfo(Device device, unsigned clock, unsigned *out) {
  return clock < CLOCKS ? cl_nvml_give(device, out, least(clock))
                        : give_clock(device, SM, out, SM, 0); /* 3 for all others */
}
#define GIVES_MOST(name, supported)                                  \
  EXPORT Result name(Device device, unsigned clock, unsigned *out) { \
    return give_clock(device, clock, out, supported, most(clock));   \
  }
GIVES_MOST(nvmlDeviceGetMaxClockInfo, CLOCKS)
GIVES_MOST(nvmlDeviceGetApplicationsClock, VIDEO)
GIVES_MOST(nvmlDeviceGetDefaultApplicationsClock, VIDEO)
GIVES_MOST(nvmlDeviceGetMaxCustomerBoostClock, MEMORY)

EXPORT Result nvmlDeviceGetClock(Device device, unsigned clock, unsigned id, unsigned *out) {
  enum { CURRENT, APPLICATIONS, DEFAULT_APPLICATIONS, CUSTOMER_BOOST };
  CHECK(device, out && clock < CLOCKS && id <= CUSTOMER_BOOST);
  if (id == CURRENT) return nvmlDeviceGetClockInfo(device, clock, out);
  if (id == CUSTOMER_BOOST) return nvmlDeviceGetMaxCustomerBoostClock(device, clock, out);
  return nvmlDeviceGetApplicationsClock(device, clock, out);
}

EXPORT Result nvmlDeviceGetSupportedMemoryClocks(Device device, unsigned *count, unsigned *clocks) {
  CHECK(device, count);
  bool fits = clocks && *count >= 1;
  *count = 1;
  if (!fits) return INSUFFICIENT_SIZE;
  *clocks = most(MEMORY);
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetSupportedGraphicsClocks(Device device, unsigned memory, unsigned *count, unsigned *clocks) {
  CHECK(device, count);
  if (memory != most(MEMORY)) return NOT_FOUND;
  unsigned highest = most(GRAPHICS), needed = (highest - least(GRAPHICS)) / STEP + 1;
  bool fits = clocks && *count >= needed;
  *count = needed;
  if (!fits) return INSUFFICIENT_SIZE;
  for (unsigned at = 0; at < needed; at++) clocks[at] = highest - at * STEP;
  return SUCCESS;
}

/* -- performance states -- */

enum { P0 = 0, P2 = 2, PSTATES = 16, PSTATE_UNKNOWN = 32 };

EXPORT Result nvmlDeviceGetSupportedPerformanceStates(Device device, unsigned *states, unsigned bytes) {
  CHECK(device, states);
  if (bytes < 2 * sizeof *states) return INSUFFICIENT_SIZE;
  for (size_t at = 0; at < bytes / sizeof *states; at++) states[at] = PSTATE_UNKNOWN;
  states[0] = P0;
  states[1] = P2;
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetMinMaxClockOfPState(Device device, unsigned clock, unsigned state, unsigned *min,
                                               unsigned *max) {
  CHECK(device, min && max && clock < CLOCKS && state < PSTATES);
  if (state != P0 && state != P2) return UNKNOWN;
  *min = least(clock);
  *max = most(clock);
  return SUCCESS;
}

typedef struct {
  uint32_t version, clock, state;
  int32_t offset, min, max;
} ClockOffset;
_Static_assert(sizeof(ClockOffset) == 24, "nvmlClockOffset_v1_t");

EXPORT Result nvmlDeviceGetClockOffsets(Device device, ClockOffset *info) {
  CHECK_VERSION(device, info, 1);
  if (info->clock >= CLOCKS || info->state >= PSTATES) return INVALID_ARGUMENT;
  info->offset = info->min = info->max = 0;
  return SUCCESS;
}

typedef struct {
  uint32_t version;
  char text[2048];
} ClockText;
_Static_assert(sizeof(ClockText) == 2052, "nvmlDeviceCurrentClockFreqs_v1_t, nvmlDevicePerfModes_v1_t");

/* The clocks as the real library writes them. */
static void write_clocks(char *text, size_t size) {
  const struct {
    const char *name;
    unsigned now, min, max;
  } rows[] = {
      {"nvclock", least(GRAPHICS), least(GRAPHICS), most(GRAPHICS)},
      {"memclock", most(MEMORY), most(MEMORY), most(MEMORY)},
      {"memTransferRate", 2 * most(MEMORY), 2 * most(MEMORY), 2 * most(MEMORY)},
  };
  size_t used = 0;
  for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
    const char *name = rows[at].name;
    used += (size_t)snprintf(text + used, size - used, "%s%s=%u, %smin=%u, %smax=%u, %seditable=0", at ? ", " : "",
                             name, rows[at].now, name, rows[at].min, name, rows[at].max, name);
  }
}

EXPORT Result nvmlDeviceGetCurrentClockFreqs(Device device, ClockText *info) {
  CHECK_VERSION(device, info, 1);
  write_clocks(info->text, sizeof info->text);
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetPerformanceModes(Device device, ClockText *info) {
  char clocks[512];
  CHECK_VERSION(device, info, 1);
  write_clocks(clocks, sizeof clocks);
  snprintf(info->text, sizeof info->text, "perf=0, %s ; perf=1, %s", clocks, clocks);
  return SUCCESS;
}

typedef struct {
  uint64_t reference, violation; /* microseconds, nanoseconds */
} Violation;

EXPORT Result nvmlDeviceGetViolationStatus(Device device, unsigned policy, Violation *status) {
  enum { RELIABILITY = 5, TOTAL_APPLICATION_CLOCKS = 10, TOTAL_BASE_CLOCKS = 11 };
  CHECK(device, status);
  if (policy > RELIABILITY && policy != TOTAL_APPLICATION_CLOCKS && policy != TOTAL_BASE_CLOCKS)
    return INVALID_ARGUMENT;
  *status = (Violation){.reference = (uint64_t)time(NULL) * 1000000};
  return SUCCESS;
}

/* -- power, in milliwatts -- */

/* An idle H100 draws 74 of its 700 W. */
static unsigned nvml_power(void) { return cl_nvml_card()->power / 10; }

/* Millijoules since the machine was started; it grows. */
static uint64_t nvml_energy(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return ((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000) * nvml_power() / 1000;
}

GIVES(nvmlDeviceGetPowerUsage, nvml_power())
GIVES(nvmlDeviceGetEnforcedPowerLimit, cl_nvml_card()->power)
GIVES(nvmlDeviceGetPowerManagementLimit, cl_nvml_card()->power)
GIVES(nvmlDeviceGetPowerManagementDefaultLimit, cl_nvml_card()->power)
GIVES_TWO(nvmlDeviceGetPowerManagementLimitConstraints, unsigned, true, cl_nvml_card()->least_power,
          cl_nvml_card()->power)

EXPORT Result nvmlDeviceGetTotalEnergyConsumption(Device device, uint64_t *out) {
  CHECK(device, out);
  *out = nvml_energy();
  return SUCCESS;
}

/* -- temperature, in degrees Celsius -- */

enum { IDLE_TEMPERATURE = 36 };

EXPORT Result nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *out) {
  CHECK(device, sensor == 0);
  return cl_nvml_give(device, out, IDLE_TEMPERATURE);
}

typedef struct {
  uint32_t version, sensor;
  int32_t temperature;
} Temperature;
_Static_assert(sizeof(Temperature) == 12, "nvmlTemperature_v1_t");

EXPORT Result nvmlDeviceGetTemperatureV(Device device, Temperature *info) {
  CHECK_VERSION(device, info, 1);
  if (info->sensor != 0) return INVALID_ARGUMENT;
  info->temperature = IDLE_TEMPERATURE;
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetTemperatureThreshold(Device device, unsigned threshold, unsigned *out) {
  static const unsigned degrees[] = {95, 89, 95, 87, 0, 0, 0, 0}; /* shutdown, slowdown, memory, GPU, not supported */
  CHECK(device, out);
  if (threshold >= sizeof degrees / sizeof *degrees) return INVALID_ARGUMENT;
  if (!degrees[threshold]) return NOT_SUPPORTED;
  *out = degrees[threshold];
  return SUCCESS;
}

/* -- fans -- */

/* The speed of an idle card's fan is 0; a card for data centers has no fan. */
EXPORT Result nvmlDeviceGetFanSpeed(Device device, unsigned *out) {
  CHECK(device, out);
  if (!cl_nvml_card()->fans) return NOT_SUPPORTED;
  *out = 0;
  return SUCCESS;
}

#define GIVES_ZERO_OF_FAN(name)                                    \
  EXPORT Result name(Device device, unsigned fan, unsigned *out) { \
    CHECK(device, fan < cl_nvml_card()->fans);                     \
    return cl_nvml_give(device, out, 0);                           \
  }
GIVES_ZERO_OF_FAN(nvmlDeviceGetFanSpeed_v2)
GIVES_ZERO_OF_FAN(nvmlDeviceGetTargetFanSpeed)
GIVES_ZERO_OF_FAN(nvmlDeviceGetFanControlPolicy_v2) /* that of the firmware */

EXPORT Result nvmlDeviceGetMinMaxFanSpeed(Device device, unsigned *min, unsigned *max) {
  CHECK(device, min && max && cl_nvml_card()->fans);
  *min = 0;
  *max = 100;
  return SUCCESS;
}

/* -- values that are asked for by number -- */

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

typedef struct {
  uint32_t field, scope;
  int64_t microseconds, latency;
  uint32_t type;
  Result result;
  uint64_t value;
} FieldValue;
_Static_assert(sizeof(FieldValue) == 40, "nvmlFieldValue_t");

/* What a running card measures, and what is on its label. */
static bool measured(FieldValue *out) {
  enum { ENERGY = 83, POWER_AVERAGE = 185, POWER_INSTANT, POWER_MIN, POWER_MAX, POWER_DEFAULT, POWER_CURRENT };
  enum { ENERGY_OF_MODULE = 191, POWER_REQUESTED = 192 };
  out->type = UNSIGNED_INT;
  if (out->field == ENERGY || out->field == ENERGY_OF_MODULE) {
    out->type = UNSIGNED_LONG_LONG;
    out->value = nvml_energy();
  } else if (out->field == POWER_AVERAGE || out->field == POWER_INSTANT) out->value = nvml_power();
  else if (out->field == POWER_MIN) out->value = cl_nvml_card()->least_power;
  else if ((out->field >= POWER_MAX && out->field <= POWER_CURRENT) || out->field == POWER_REQUESTED)
    out->value = cl_nvml_card()->power;
  else return false;
  return true;
}

static void answer(FieldValue *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  out->microseconds = now.tv_sec * 1000000 + now.tv_nsec / 1000;
  out->latency = 0;
  out->result = SUCCESS;
  if (measured(out)) return;
  out->type = 0;
  for (size_t at = 0; at < sizeof fields / sizeof *fields; at++)
    if (fields[at].field == out->field) {
      out->type = fields[at].type;
      out->value = (uint32_t)fields[at].value;
      return;
    }
  out->result = out->field == 0 || out->field > LAST_FIELD ? INVALID_ARGUMENT : NOT_SUPPORTED;
}

EXPORT Result nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values) {
  CHECK(device, values && count > 0);
  for (int at = 0; at < count; at++) answer(&values[at]);
  return SUCCESS;
}

EXPORT Result nvmlDeviceClearFieldValues(Device device, int count, FieldValue *values) {
  CHECK(device, values && count > 0);
  for (int at = 0; at < count; at++) values[at].result = NOT_SUPPORTED;
  return SUCCESS;
}
