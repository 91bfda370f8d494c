/* Values that are asked for by number. */
#include <string.h>
#include <time.h>

#include "nvml.h"
#include "nvml_clocks.h"

#include "nvml_fields.inc" /* fields, LAST_FIELD */

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
    out->value = cl_nvml_energy();
  } else if (out->field == POWER_AVERAGE || out->field == POWER_INSTANT) out->value = cl_nvml_power();
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
  out->value = 0;
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
