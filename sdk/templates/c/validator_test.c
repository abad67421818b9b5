/* The validator on this machine, within milliseconds: `cc -I bindings -o plugin-test test/plugin_test.c && ./plugin-test`.
 * `tribunal plugin test` runs the built plugin in the service's own engine. */
#include "../src/plugin.c"

#include <stdio.h>
#include <string.h>

#define COUNT 3
#define ROWS_READ 3
#define NAMED(group) ((exports_tribunal_plugin_validator_needs() & EXPORTS_TRIBUNAL_PLUGIN_VALIDATOR_GROUPS_##group) != 0)
/* A list as the service passes it: empty if `needs` does not name its group. */
#define GIVEN(group, values) \
  {.ptr = NAMED(group) ? (values) : NULL, .len = NAMED(group) ? sizeof(values) / sizeof *(values) : 0}

static int failures;

static void check(bool holds, const char *what) {
  failures += !holds;
  printf("%s: %s\n", holds ? "ok" : "FAILED", what);
}

/* The bindings that the service uses are for WebAssembly; here, this one suffices. */
void isolation_validator_string_dup(isolation_validator_string_t *ret, const char *text) {
  ret->len = strlen(text);
  ret->ptr = malloc(ret->len);
  memcpy(ret->ptr, text, ret->len);
}

/* Validates three transactions: the first has read two rows, the third one; the first writes a row, after reading it. Every
 * group has values; the validator gets those that it needs. */
static exports_tribunal_plugin_validator_validation_t validate(uint64_t seen[ROWS_READ], uint64_t latest[ROWS_READ]) {
  uint64_t csn[COUNT] = {1, 2, 3}, start[COUNT] = {9, 9, 9}, origin[COUNT] = {1, 1, 1};
  uint64_t first_attempt[COUNT] = {1767225600000u, 1767225600000u, 1767225600000u};
  uint8_t priority[COUNT] = {100, 100, 100};
  uint32_t reads[COUNT] = {2, 0, 1}, writes[COUNT] = {1, 0, 0};
  uint64_t named[COUNT] = {8, 8, 8}, from[COUNT] = {5, 5, 5}, until[COUNT] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
  uint8_t multi_version[COUNT] = {0, 0, 0};
  uint32_t read_ends[COUNT] = {2, 2, 3}, range_ends[COUNT] = {0, 0, 0}, write_ends[COUNT] = {1, 1, 1};
  uint8_t changed[1] = {0}, kind[1] = {2}, flags[1] = {7};
  uint64_t epoch_seen[ROWS_READ], epoch_latest[ROWS_READ], epoch_written[1] = {latest[0] >> 20};
  uint64_t write_latest[1] = {latest[0]};
  for (int i = 0; i < ROWS_READ; i++) {
    epoch_seen[i] = seen[i] >> 20;
    epoch_latest[i] = latest[i] >> 20;
  }
  uint64_t seen_here[ROWS_READ], latest_here[ROWS_READ];
  memcpy(seen_here, seen, sizeof seen_here);
  memcpy(latest_here, latest, sizeof latest_here);
  exports_tribunal_plugin_validator_evidence_t evidence = {
      .count = COUNT,
      .epoch = 9,
      .txns = {GIVEN(TXNS, csn), GIVEN(TXNS, start), GIVEN(TXNS, origin), GIVEN(TXNS, priority), GIVEN(TXNS, reads),
               GIVEN(TXNS, writes), GIVEN(TXNS, first_attempt)},
      .snapshots = {GIVEN(SNAPSHOTS, named), GIVEN(SNAPSHOTS, from), GIVEN(SNAPSHOTS, until),
                    GIVEN(SNAPSHOTS, multi_version)},
      .reads = {GIVEN(READS, read_ends), GIVEN(READS, seen_here), GIVEN(READS, latest_here)},
      .ranges = {GIVEN(RANGES, range_ends), {.ptr = changed, .len = 0}},
      .writes = {GIVEN(WRITES, write_ends), GIVEN(WRITES, kind), GIVEN(WRITES, flags), GIVEN(WRITES, write_latest)},
      .epochs = {GIVEN(EPOCHS, epoch_seen), GIVEN(EPOCHS, epoch_latest), GIVEN(EPOCHS, epoch_written)},
  };
  exports_tribunal_plugin_validator_validation_t verdicts;
  isolation_validator_string_t err;
  check(exports_tribunal_plugin_validator_validate(&evidence, &verdicts, &err), "the evidence is judged");
  return verdicts;
}

int main(void) {
  uint64_t now[ROWS_READ] = {5u << 20, 6u << 20, 7u << 20}, old[ROWS_READ] = {5u << 20, 4u << 20, 7u << 20};
  exports_tribunal_plugin_validator_validation_t verdicts = validate(now, now);
  check(verdicts.code.ptr[0] == 0 && verdicts.code.ptr[1] == 0 && verdicts.code.ptr[2] == 0, "current reads are accepted");
  verdicts = validate(old, now);
  check(verdicts.code.ptr[0] == READ_CONFLICT && verdicts.witness.ptr[0] == 1, "a read of an old version is rejected");
  check(verdicts.code.ptr[1] == 0 && verdicts.code.ptr[2] == 0, "the other transactions are accepted");

  isolation_validator_string_t config, err;
  isolation_validator_string_dup(&config, "{}");
  check(exports_tribunal_plugin_lifecycle_init(&config, &err), "an empty configuration is accepted");
  isolation_validator_string_dup(&config, "{\"a\": 1}");
  check(!exports_tribunal_plugin_lifecycle_init(&config, &err), "a configuration is rejected");
  return failures != 0;
}
