/* The rule on this machine, within milliseconds: `cc -I bindings -o plugin-test test/plugin_test.c && ./plugin-test`.
 * `tribunal plugin test` runs the built plugin in the service's own engine. */
#include "../src/plugin.c"

#include <stdio.h>
#include <string.h>

#define COUNT 2
#define NAMED(column) ((exports_tribunal_plugin_rule_needs() & EXPORTS_TRIBUNAL_PLUGIN_RULE_COLUMNS_##column) != 0)
/* A column as the service passes it: empty if `needs` does not name it. */
#define GIVEN(column, values) {.ptr = NAMED(column) ? (values) : NULL, .len = NAMED(column) ? COUNT : 0}

static int failures;

static void check(bool holds, const char *what) {
  failures += !holds;
  printf("%s: %s\n", holds ? "ok" : "FAILED", what);
}

/* The bindings that the service uses are for WebAssembly; here, this one suffices. */
void conflict_rule_string_dup(conflict_rule_string_t *ret, const char *text) {
  ret->len = strlen(text);
  ret->ptr = malloc(ret->len);
  memcpy(ret->ptr, text, ret->len);
}

/* Tells whether the first of two transactions wins. */
static bool first_wins(const exports_tribunal_plugin_rule_ranks_t *ranks) {
  const uint64_t *hi = ranks->hi.ptr, *lo = ranks->lo.ptr;
  return hi[0] != hi[1] ? hi[0] < hi[1] : lo[0] < lo[1];
}

int main(void) {
  /* Every column has a value; the rule gets those that it needs. */
  uint64_t csn[COUNT] = {7, 3}, start[COUNT] = {9, 9}, origin[COUNT] = {1, 1};
  uint64_t first_attempt[COUNT] = {1767225600000u, 1767225600000u};
  uint8_t priority[COUNT] = {100, 100};
  uint32_t reads[COUNT] = {0, 0}, writes[COUNT] = {1, 1};
  exports_tribunal_plugin_rule_txns_t batch = {
      .count = COUNT,
      .epoch = 9,
      .csn = GIVEN(CSN, csn),
      .start = GIVEN(START, start),
      .origin = GIVEN(ORIGIN, origin),
      .priority = GIVEN(PRIORITY, priority),
      .reads = GIVEN(READS, reads),
      .writes = GIVEN(WRITES, writes),
      .first_attempt = GIVEN(FIRST_ATTEMPT, first_attempt),
  };
  exports_tribunal_plugin_rule_ranks_t ranks;
  conflict_rule_string_t err;
  bool ranked = exports_tribunal_plugin_rule_rank(&batch, &ranks, &err);
  check(ranked && ranks.hi.len == COUNT && ranks.lo.len == COUNT, "there is one rank for each transaction");
  check(ranked && !first_wins(&ranks), "the first arrival wins");
  return failures != 0;
}
