/* Texts by which a device is found. */
#pragma once

enum { IDENTITY_SIZE = 64, UUID_SIZE = 16 };

void cl_nvml_uuid(unsigned index, char text[IDENTITY_SIZE]);
void cl_nvml_serial(unsigned index, char text[IDENTITY_SIZE]);
