/* The attributes of functions. */
#include "attributes.h"

enum { FORMS = 4, FORM_SIZED = 4, HEAD = 4 };

/* A record: format, attribute, then two bytes of value, or a size and a payload. */
bool art_next_attribute(const ElfSection *section, Bytes bytes, uint64_t *at, Attribute *attribute, Problem *problem) {
  Bytes head;
  *attribute = (Attribute){0};
  if (!art_span(bytes, *at, HEAD, &head))
    return art_outside(problem, bytes, *at, HEAD, "attribute in %.80s", section->name);
  uint8_t form = head.at[0];
  attribute->attribute = head.at[1];
  *at += HEAD;
  if (form < 1 || form > FORMS)
    return art_damaged(problem, "attribute 0x%x in %.80s has format %u, expected 1 to %d", attribute->attribute,
                       section->name, form, FORMS);
  if (form != FORM_SIZED) return true;
  uint64_t size = art_u16(head.at + 2);
  if (!art_span(bytes, *at, size, &attribute->payload))
    return art_outside(problem, bytes, *at, size, "attribute 0x%x in %.80s", attribute->attribute, section->name);
  attribute->has_payload = true;
  *at += size;
  return true;
}

uint32_t art_attribute_number(Bytes payload, uint64_t from) {
  uint32_t number = 0;
  for (uint32_t byte = 0; byte < 4 && from + byte < payload.size; byte++)
    number |= (uint32_t)payload.at[from + byte] << 8 * byte;
  return number;
}
