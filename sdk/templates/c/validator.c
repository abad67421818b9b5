/* {{name}}: an isolation validator. It replaces the validator of a level and must reject at least what that level
 * forbids. This one implements repeatable read: every row must still have the version that was read. */
#include "isolation_validator.h"
#include <stdlib.h>

/* A built-in reason. Reasons of plugins have the codes 1 to 127, those from 64 on for good. */
#define READ_CONFLICT 128

void exports_tribunal_plugin_lifecycle_describe(exports_tribunal_plugin_lifecycle_description_t *ret) {
  isolation_validator_string_dup(&ret->name, "{{name}}");
  isolation_validator_string_dup(&ret->version, "0.1.0");
  isolation_validator_string_dup(&ret->about, "Rejects a transaction if a row that it read has changed.");
}

/* Gets the configuration, JSON text. Return false to reject it, with the reason in `err`. */
bool exports_tribunal_plugin_lifecycle_init(isolation_validator_string_t *config, isolation_validator_string_t *err) {
  if (config->len > 2) {
    isolation_validator_string_dup(err, "configuration: this plugin has no configuration");
    return false;
  }
  return true;
}

/* Lists of groups that are not named here arrive empty. */
exports_tribunal_plugin_validator_groups_t exports_tribunal_plugin_validator_needs(void) {
  return EXPORTS_TRIBUNAL_PLUGIN_VALIDATOR_GROUPS_READS;
}

bool exports_tribunal_plugin_validator_validate(
    exports_tribunal_plugin_validator_evidence_t *evidence, exports_tribunal_plugin_validator_validation_t *ret,
    isolation_validator_string_t *err) {
  (void)err;
  ret->code.len = ret->witness.len = evidence->count;
  ret->code.ptr = calloc(evidence->count, sizeof(uint8_t));
  ret->witness.ptr = calloc(evidence->count, sizeof(uint32_t));
  uint32_t at = 0;
  for (uint32_t t = 0; t < evidence->count; t++) {
    uint32_t start = at;
    ret->witness.ptr[t] = UINT32_MAX;
    for (; at < evidence->reads.ends.ptr[t]; at++) {
      if (evidence->reads.seen.ptr[at] != evidence->reads.latest.ptr[at] && ret->code.ptr[t] == 0) {
        ret->code.ptr[t] = READ_CONFLICT;
        ret->witness.ptr[t] = at - start;
      }
    }
  }
  return true;
}
