/* {{name}}: a conflict rule. It decides which transaction wins a contended row: it computes a rank for each contended
 * transaction from the transaction's own columns; the lowest rank wins, and equal ranks are ordered by arrival. */
#include "conflict_rule.h"
#include <stdlib.h>

void exports_tribunal_plugin_lifecycle_describe(exports_tribunal_plugin_lifecycle_description_t *ret) {
  conflict_rule_string_dup(&ret->name, "{{name}}");
  conflict_rule_string_dup(&ret->version, "0.1.0");
  conflict_rule_string_dup(&ret->about, "The transaction that arrived first wins.");
}

/* Gets the configuration, JSON text. Return false to reject it, with the reason in `err`. */
bool exports_tribunal_plugin_lifecycle_init(conflict_rule_string_t *config, conflict_rule_string_t *err) {
  if (config->len > 2) {
    conflict_rule_string_dup(err, "configuration: this plugin has no configuration");
    return false;
  }
  return true;
}

/* Columns that are not named here arrive empty. */
exports_tribunal_plugin_rule_columns_t exports_tribunal_plugin_rule_needs(void) {
  return EXPORTS_TRIBUNAL_PLUGIN_RULE_COLUMNS_CSN;
}

bool exports_tribunal_plugin_rule_rank(
    exports_tribunal_plugin_rule_txns_t *batch, exports_tribunal_plugin_rule_ranks_t *ret, conflict_rule_string_t *err) {
  (void)err;
  ret->hi.len = ret->lo.len = batch->count;
  ret->hi.ptr = calloc(batch->count, sizeof(uint64_t));
  ret->lo.ptr = batch->csn.ptr;
  batch->csn.ptr = NULL;
  batch->csn.len = 0;
  return true;
}
