/* {{name}}: a LogAdaptor. It translates records of the log into requests, which the host sends to the storage. This one
 * writes to Redis: each row becomes the string `<prefix><key>` with the row's JSON. A single script writes the rows and moves
 * the watermark, so that a replay changes nothing.
 *
 * An instance may serve several batches: state left over from one must not affect the results for the next. */
#include "log_adaptor.h"
#include <stdlib.h>
#include <string.h>

/* Maximum size of the rows in one request, unless a single record is larger. */
#define REQUEST_BYTES_MAX (256 * 1024)

/* Kinds of writes: insert, update and put write the row. */
#define DELETE 3

typedef exports_tribunal_plugin_adaptor_log_batch_t log_batch;
typedef exports_tribunal_plugin_adaptor_request_t request;
typedef exports_tribunal_plugin_adaptor_reply_t reply;
typedef exports_tribunal_plugin_adaptor_resp_value_t resp_value;

/* KEYS: the watermark, then a key per row. ARGV: the watermark before and after, then `p` or `d` and a value per row. */
static const char APPLY[] =
    "local at = redis.call('GET', KEYS[1]) or '0'\n"
    "if at ~= ARGV[1] then return redis.error_reply('MOVED ' .. at) end\n"
    "for i = 2, #KEYS do\n"
    "  if ARGV[2 * i - 1] == 'd' then redis.call('DEL', KEYS[i]) else redis.call('SET', KEYS[i], ARGV[2 * i]) end\n"
    "end\n"
    "redis.call('SET', KEYS[1], ARGV[2])\n"
    "return redis.status_reply('OK')";
static const char WATERMARK[] = "#watermark:";

/* Prefix of the keys of all rows: the only part of the store's configuration that this plugin uses. */
static char *prefix;
static size_t prefix_len;

/* A command under construction: the bytes of its arguments and where each ends. */
typedef struct {
  uint8_t *bytes;
  size_t len, room;
  uint32_t *ends;
  size_t count, ends_room;
} command;

static void *grown(void *block, size_t *room, size_t need, size_t size) {
  if (need <= *room) return block;
  *room = need > 2 * *room ? need : 2 * *room;
  return realloc(block, *room * size);
}

static void append(command *c, const void *bytes, size_t len) {
  c->bytes = grown(c->bytes, &c->room, c->len + len, 1);
  memcpy(c->bytes + c->len, bytes, len);
  c->len += len;
}

static void end_argument(command *c) {
  c->ends = grown(c->ends, &c->ends_room, c->count + 1, sizeof(uint32_t));
  c->ends[c->count++] = (uint32_t)c->len;
}

static void argument(command *c, const void *bytes, size_t len) {
  append(c, bytes, len);
  end_argument(c);
}

/* Writes a number in decimal. Returns the number of digits. */
static size_t decimal(uint64_t number, char digits[20]) {
  size_t count = 0;
  do digits[count++] = (char)('0' + number % 10);
  while (number /= 10);
  for (size_t i = 0; i < count / 2; i++) {
    char swapped = digits[i];
    digits[i] = digits[count - 1 - i];
    digits[count - 1 - i] = swapped;
  }
  return count;
}

static void number_argument(command *c, uint64_t number) {
  char digits[20];
  argument(c, digits, decimal(number, digits));
}

static void watermark_key(command *c) {
  append(c, WATERMARK, sizeof WATERMARK - 1);
  argument(c, prefix, prefix_len);
}

/* Makes `c` the only command of a request. */
static void finish(command *c, request *to) {
  exports_tribunal_plugin_adaptor_resp_pipeline_t *pipeline = &to->command.val.resp;
  to->command.tag = EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_COMMAND_RESP;
  pipeline->args.ptr = c->bytes;
  pipeline->args.len = c->len;
  pipeline->arg_ends.ptr = c->ends;
  pipeline->arg_ends.len = c->count;
  pipeline->command_ends.ptr = malloc(sizeof(uint32_t));
  pipeline->command_ends.ptr[0] = (uint32_t)c->count;
  pipeline->command_ends.len = 1;
}

void exports_tribunal_plugin_lifecycle_describe(exports_tribunal_plugin_lifecycle_description_t *ret) {
  log_adaptor_string_dup(&ret->name, "{{name}}");
  log_adaptor_string_dup(&ret->version, "0.1.0");
  log_adaptor_string_dup(&ret->about, "Writes rows to Redis as strings, with their watermark in one script.");
}

static const char *after_blanks(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')) at++;
  return at;
}

/* Reads a JSON string without escapes at `at`. Returns the position after it, or NULL if there is none. */
static const char *after_string(const char *at, const char *end, const char **text, size_t *len) {
  if (at == end || *at != '"') return NULL;
  for (*text = ++at; at < end && *at != '"'; at++)
    if (*at == '\\') return NULL;
  *len = (size_t)(at - *text);
  return at < end ? at + 1 : NULL;
}

static bool is(const char *text, size_t len, const char *expected) {
  return len == strlen(expected) && memcmp(text, expected, len) == 0;
}

/* Rejects the configuration. The reason is `before` and, if there is a setting to name, its name and `after`. */
static bool rejected(log_adaptor_string_t *err, const char *before, const char *name, size_t name_len, const char *after) {
  size_t before_len = strlen(before), after_len = strlen(after);
  char *text = malloc(before_len + name_len + after_len + 2), *end = text;
  memcpy(end, before, before_len);
  end += before_len;
  if (name) {
    *end++ = '`';
    memcpy(end, name, name_len);
    end += name_len;
    *end++ = '`';
    memcpy(end, after, after_len);
    end += after_len;
  }
  log_adaptor_string_dup_n(err, text, (size_t)(end - text));
  free(text);
  return false;
}

/* Gets the configuration, a JSON object of strings, of which the host reads `endpoint` and `user`. Returns false to reject
 * it, with the reason in `err`: a setting that is not listed here would have no effect. */
bool exports_tribunal_plugin_lifecycle_init(log_adaptor_string_t *config, log_adaptor_string_t *err) {
  static const char form[] = "configuration: it must be a JSON object whose values are strings without escapes";
  const char *at = (const char *)config->ptr, *end = at + config->len, *found = "", *name, *value;
  size_t found_len = 0, name_len, value_len;
  at = after_blanks(at, end);
  /* No text at all is an empty configuration. */
  bool is_first = true, is_open = at < end;
  if (is_open && *at++ != '{') return rejected(err, form, NULL, 0, "");
  for (; is_open; is_first = false) {
    at = after_blanks(at, end);
    if (is_first && at < end && *at == '}') {
      at++;
      break;
    }
    at = after_string(at, end, &name, &name_len);
    if (!at) return rejected(err, form, NULL, 0, "");
    at = after_blanks(at, end);
    if (at == end || *at++ != ':') return rejected(err, form, NULL, 0, "");
    at = after_string(after_blanks(at, end), end, &value, &value_len);
    if (!at) return rejected(err, "configuration: ", name, name_len, " must be a string without escapes");
    if (is(name, name_len, "prefix")) {
      found = value;
      found_len = value_len;
    } else if (!is(name, name_len, "endpoint") && !is(name, name_len, "user")) {
      return rejected(err, "configuration: unknown setting ", name, name_len, "");
    }
    at = after_blanks(at, end);
    if (at == end || (*at != ',' && *at != '}')) return rejected(err, form, NULL, 0, "");
    is_open = *at++ == ',';
  }
  if (after_blanks(at, end) != end) return rejected(err, form, NULL, 0, "");
  prefix = malloc(found_len);
  memcpy(prefix, found, found_len);
  prefix_len = found_len;
  return true;
}

/* The kinds of writes that the adaptor supports. A string cannot be added to, so `add` is missing: the service rejects
 * commits with an `add` to this store. */
exports_tribunal_plugin_adaptor_kinds_t exports_tribunal_plugin_adaptor_takes(void) {
  return EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_KINDS_INSERT | EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_KINDS_UPDATE |
         EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_KINDS_PUT | EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_KINDS_DELETE;
}

bool exports_tribunal_plugin_adaptor_watermark(request *ret, log_adaptor_string_t *err) {
  (void)err;
  command c = {0};
  argument(&c, "GET", 3);
  watermark_key(&c);
  ret->first = ret->last = 0;
  log_adaptor_string_dup(&ret->idempotency_key, "watermark");
  finish(&c, ret);
  return true;
}

/* Returns the reply to the only command; NULL if it is not a reply of Redis. */
static const resp_value *only(const reply *answer) {
  bool one = answer->tag == EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_REPLY_RESP && answer->val.resp.len == 1;
  return one ? &answer->val.resp.ptr[0] : NULL;
}

/* If this fails, the host passes the same reply to `classify`, and asks again later if that returns `retry`. After anything
   else, the push stops with the error. */
bool exports_tribunal_plugin_adaptor_read_watermark(reply *answer, uint64_t *ret, log_adaptor_string_t *err) {
  const resp_value *found = only(answer);
  *ret = 0;
  if (found && found->tag == EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_RESP_VALUE_NIL) return true;
  if (!found || found->tag != EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_RESP_VALUE_TEXT || found->val.text.len == 0) {
    log_adaptor_string_dup(err, "the reply contains no watermark");
    return false;
  }
  for (size_t i = 0; i < found->val.text.len; i++) {
    uint8_t digit = (uint8_t)(found->val.text.ptr[i] - '0');
    if (digit > 9 || *ret > (UINT64_MAX - digit) / 10) {
      log_adaptor_string_dup(err, "the watermark is not a number");
      return false;
    }
    *ret = 10 * *ret + digit;
  }
  return true;
}

/* Returns the index of a record's first row. */
static uint32_t rows_from(const log_batch *batch, size_t record) { return record ? batch->row_ends.ptr[record - 1] : 0; }

/* Builds the request for the records from `start` up to, but not including, `end`. */
static void encode(const log_batch *batch, size_t start, size_t end, request *to) {
  uint64_t first = batch->lsn.ptr[start], last = batch->lsn.ptr[end - 1];
  uint32_t from = rows_from(batch, start), until = rows_from(batch, end);
  command c = {0};
  argument(&c, "EVAL", 4);
  argument(&c, APPLY, sizeof APPLY - 1);
  number_argument(&c, 1 + until - from);
  watermark_key(&c);
  for (uint32_t row = from; row < until; row++) {
    append(&c, prefix, prefix_len);
    argument(&c, batch->bytes.ptr + batch->key_at.ptr[row], batch->key_len.ptr[row]);
  }
  number_argument(&c, first - 1);
  number_argument(&c, last);
  for (uint32_t row = from; row < until; row++) {
    uint8_t kind = batch->kind.ptr[row];
    argument(&c, kind == DELETE ? "d" : "p", 1);
    argument(&c, batch->bytes.ptr + batch->value_at.ptr[row], batch->value_len.ptr[row]);
  }
  to->first = first;
  to->last = last;
  finish(&c, to);
  /* The idempotency key: the same for every attempt to push the same records. */
  command key = {0};
  char digits[20];
  append(&key, batch->store.ptr, batch->store.len);
  append(&key, ":", 1);
  append(&key, digits, decimal(first, digits));
  append(&key, "-", 1);
  append(&key, digits, decimal(last, digits));
  to->idempotency_key.ptr = key.bytes;
  to->idempotency_key.len = key.len;
}

/* Groups of whole records, in order. */
bool exports_tribunal_plugin_adaptor_encode(
    log_batch *batch, exports_tribunal_plugin_adaptor_list_request_t *ret, log_adaptor_string_t *err) {
  (void)err;
  size_t count = batch->lsn.len, start = 0, bytes = 0;
  ret->ptr = malloc(count * sizeof(request));
  ret->len = 0;
  for (size_t record = 0; record < count; record++) {
    size_t own = 0;
    for (uint32_t row = rows_from(batch, record); row < batch->row_ends.ptr[record]; row++) {
      own += batch->key_len.ptr[row] + batch->value_len.ptr[row] + 16;
    }
    if (record > start && bytes + own > REQUEST_BYTES_MAX) {
      encode(batch, start, record, &ret->ptr[ret->len++]);
      start = record;
      bytes = 0;
    }
    bytes += own;
  }
  if (start < count) encode(batch, start, count, &ret->ptr[ret->len++]);
  return true;
}

static bool starts_with(const log_adaptor_string_t *text, const char *word) {
  size_t len = strlen(word);
  return text->len >= len && memcmp(text->ptr, word, len) == 0;
}

void exports_tribunal_plugin_adaptor_classify(reply *answer, exports_tribunal_plugin_adaptor_ack_t *ret) {
  static const char *const passing[] = {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF",
                                        "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"};
  const resp_value *found = only(answer);
  ret->tag = EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_ACK_FATAL;
  if (found && found->tag == EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_RESP_VALUE_TEXT && found->val.text.len == 2 &&
      memcmp(found->val.text.ptr, "OK", 2) == 0) {
    ret->tag = EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_ACK_OK;
    return;
  }
  if (!found || found->tag != EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_RESP_VALUE_ERROR) {
    log_adaptor_string_dup(&ret->val.fatal, "not a reply to this script");
    return;
  }
  /* The script returns `MOVED` if the watermark is not where it was expected. */
  if (starts_with(&found->val.error, "MOVED ")) ret->tag = EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_ACK_MOVED;
  for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
    if (starts_with(&found->val.error, passing[i])) ret->tag = EXPORTS_TRIBUNAL_PLUGIN_ADAPTOR_ACK_RETRY;
  }
  log_adaptor_string_dup_n(&ret->val.fatal, (const char *)found->val.error.ptr, found->val.error.len);
}
