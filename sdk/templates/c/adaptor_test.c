/* The adaptor on this machine, within milliseconds: `cc -I bindings -o plugin-test test/plugin_test.c && ./plugin-test`.
 * `tribunal plugin test` runs the built plugin in the service's own engine, and with `--storage` against a real storage. */
#include "../src/plugin.c"

#include <stdio.h>

static int failures;

static void check(bool holds, const char *what) {
  failures += !holds;
  printf("%s: %s\n", holds ? "ok" : "FAILED", what);
}

/* The bindings that the service uses are for WebAssembly; here, these two suffice. */
void log_adaptor_string_dup_n(log_adaptor_string_t *ret, const char *text, size_t len) {
  ret->len = len;
  ret->ptr = malloc(len);
  memcpy(ret->ptr, text, len);
}

void log_adaptor_string_dup(log_adaptor_string_t *ret, const char *text) {
  log_adaptor_string_dup_n(ret, text, strlen(text));
}

/* Tells whether the arguments of the only command are these, but for the script, which is the second. */
static bool has_arguments(const request *made, const char *const *expected, size_t count) {
  const exports_tribunal_plugin_adaptor_resp_pipeline_t *sent = &made->command.val.resp;
  if (sent->command_ends.len != 1 || sent->arg_ends.len != count) return false;
  for (size_t i = 0, at = 0; i < count; at = sent->arg_ends.ptr[i++]) {
    size_t len = sent->arg_ends.ptr[i] - at;
    if (i != 1 && (len != strlen(expected[i]) || memcmp(sent->args.ptr + at, expected[i], len) != 0)) return false;
  }
  return true;
}

/* Returns what the adaptor makes of a reply of Redis. */
static uint8_t classified(uint8_t tag, const char *text) {
  resp_value value = {.tag = tag};
  /* Texts and errors have the same form. */
  log_adaptor_string_dup((log_adaptor_string_t *)&value.val.text, text);
  reply answer = {.tag = EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_REPLY_RESP, .val.resp = {.ptr = &value, .len = 1}};
  exports_tribunal_plugin_adaptor_ack_t ack;
  exports_tribunal_plugin_adaptor_classify(&answer, &ack);
  return ack.tag;
}

static void check_encoding(void) {
  /* Two records: a put and a delete, then an insert. */
  uint64_t lsn[] = {1, 2}, epoch[] = {5, 5}, csn[] = {50, 51}, version[] = {5u << 20, 5u << 20};
  uint8_t txn_ids[32] = {0}, kind[] = {2, DELETE, 0}, bytes[] = "a1bc3";
  uint32_t row_ends[] = {2, 3}, key_at[] = {0, 2, 3}, key_len[] = {1, 1, 1}, value_at[] = {1, 3, 4}, value_len[] = {1, 0, 1};
  log_batch batch = {
      .lsn = {lsn, 2},
      .epoch = {epoch, 2},
      .csn = {csn, 2},
      .version = {version, 2},
      .txn_ids = {txn_ids, 32},
      .row_ends = {row_ends, 2},
      .kind = {kind, 3},
      .key_at = {key_at, 3},
      .key_len = {key_len, 3},
      .value_at = {value_at, 3},
      .value_len = {value_len, 3},
      .bytes = {bytes, sizeof bytes - 1},
  };
  log_adaptor_string_dup(&batch.store, "kv");
  exports_tribunal_plugin_adaptor_list_request_t requests;
  log_adaptor_string_t err;
  bool encoded = exports_tribunal_plugin_adaptor_encode(&batch, &requests, &err);
  check(encoded && requests.len == 1 && requests.ptr[0].first == 1 && requests.ptr[0].last == 2, "a batch is one request");
  static const char *const expected[] = {"EVAL", "",  "4", "#watermark:p:", "p:a", "p:b", "p:c",
                                         "0",    "2", "p", "1",             "d",   "",    "p",  "3"};
  size_t count = sizeof expected / sizeof *expected;
  check(encoded && has_arguments(&requests.ptr[0], expected, count), "rows become strings, and the watermark follows");
}

/* Tells whether a configuration is rejected for this reason; accepted, if it is NULL. */
static bool is_rejected(const char *text, const char *reason) {
  log_adaptor_string_t config, err = {0};
  log_adaptor_string_dup(&config, text);
  if (exports_tribunal_plugin_lifecycle_init(&config, &err)) return !reason;
  return reason && err.len == strlen(reason) && memcmp(err.ptr, reason, err.len) == 0;
}

static void check_configurations(void) {
  static const char form[] = "configuration: it must be a JSON object whose values are strings without escapes";
  check(is_rejected("", NULL) && is_rejected(" { } ", NULL), "every setting has a default");
  check(is_rejected("{\"prefx\": \"p:\"}", "configuration: unknown setting `prefx`"), "an unknown setting is rejected");
  check(is_rejected("{\"prefix\": 1}", "configuration: `prefix` must be a string without escapes"), "so is a number");
  static const char *const broken[] = {"[]", "{", "{\"prefix\": \"p:\"", "{\"prefix\"}", "{\"prefix\": \"p:\",}", "{} {}"};
  bool all = true;
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) all = is_rejected(broken[i], form) && all;
  check(all, "so is anything that is no object");
  check(is_rejected("{\"endpoint\": \"h:1\",\n \"user\": \"u\", \"prefix\": \"p:\"}", NULL), "the configuration is accepted");
}

int main(void) {
  check_configurations();
  check_encoding();
  check(classified(EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_RESP_VALUE_TEXT, "OK") == EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_ACK_OK, "OK");
  check(
      classified(EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_RESP_VALUE_ERROR, "MOVED 9") ==
          EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_ACK_MOVED,
      "a watermark that has moved is recognized");
  check(
      classified(EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_RESP_VALUE_ERROR, "LOADING") ==
          EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_ACK_RETRY,
      "a temporary error is retried");
  check(
      classified(EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_RESP_VALUE_TEXT, "1") == EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_ACK_FATAL,
      "any other reply is fatal");
  return failures != 0;
}
