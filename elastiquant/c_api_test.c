/* The C header as a C99 program sees it; no test framework, since those are C++. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elastiquant/elastiquant.h"

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition, \
              eq_last_error());                                                               \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

enum { COUNT = 1000 };

static void test_round_trip(const char* spec, float tolerance) {
  float values[COUNT], decoded[COUNT], sum[COUNT];
  eq_codec* codec = NULL;
  eq_workspace* work = NULL;
  eq_frame_info info;
  uint8_t *frame, *again;
  size_t room = 0, size = 0, size_again = 0, i;
  for (i = 0; i < COUNT; ++i) {
    values[i] = (float)((double)i - 500.5) / 500;
    sum[i] = 1.0f;
  }
  CHECK(eq_codec_create(spec, &codec) == EQ_OK);
  CHECK(eq_workspace_create(2, &work) == EQ_OK);
  CHECK(eq_codec_spec(codec) != NULL && strlen(eq_codec_spec(codec)) > 0);
  CHECK(eq_max_frame_bytes(codec, COUNT, &room) == EQ_OK);
  frame = malloc(room);
  again = malloc(room);
  CHECK(frame != NULL && again != NULL);
  CHECK(eq_encode(codec, work, values, COUNT, 1, 2, 3, 4, frame, room, &size) == EQ_OK);
  CHECK(size > 0 && size <= room);
  CHECK(eq_encode(codec, work, values, COUNT, 1, 2, 3, 4, again, room, &size_again) == EQ_OK);
  CHECK(size == size_again && memcmp(frame, again, size) == 0);

  CHECK(eq_inspect(frame, size, &info) == EQ_OK);
  CHECK(strncmp(info.codec, spec, strlen(info.codec)) == 0);
  CHECK(info.elements == COUNT && info.bytes == size);
  CHECK(info.stream_key == 15374388949593934587u); /* DeriveKey(1, 2, 3, 4), frozen */

  CHECK(eq_decode(work, frame, size, decoded, COUNT) == EQ_OK);
  CHECK(eq_decode_add(work, frame, size, 0.5f, sum, COUNT) == EQ_OK);
  for (i = 0; i < COUNT; ++i) {
    CHECK(fabsf(decoded[i] - values[i]) <= tolerance);
    CHECK(sum[i] == 1.0f + 0.5f * decoded[i]);
  }

  CHECK(eq_decode(work, frame, size, decoded, COUNT - 1) == EQ_INVALID_ARGUMENT);
  CHECK(eq_decode(work, frame, size - 1, decoded, COUNT) == EQ_CORRUPT_DATA);
  frame[size - 1] ^= 1;
  CHECK(eq_decode(work, frame, size, decoded, COUNT) == EQ_CORRUPT_DATA);
  CHECK(strstr(eq_last_error(), "checksum") != NULL);
  CHECK(eq_inspect(frame, size, &info) == EQ_CORRUPT_DATA);

  CHECK(eq_encode(codec, work, values, COUNT, 0, 0, 0, 0, frame, room - 1, &size) ==
        EQ_BUFFER_TOO_SMALL);
  values[123] = NAN;
  CHECK(eq_encode(codec, work, values, COUNT, 0, 0, 0, 0, frame, room, &size) == EQ_NON_FINITE);
  CHECK(strstr(eq_last_error(), "123") != NULL);
  CHECK(eq_encode(codec, work, NULL, 0, 0, 0, 0, 0, frame, room, &size) == EQ_OK);
  CHECK(eq_decode(work, frame, size, NULL, 0) == EQ_OK);

  free(frame);
  free(again);
  eq_workspace_destroy(work);
  eq_codec_destroy(codec);
}

/* A frame that claims more values than its receiver wants to allocate. */
static void test_limit(void) {
  float values[COUNT] = {0};
  uint8_t frame[4 * COUNT + 64];
  eq_codec* codec = NULL;
  eq_workspace* work = NULL;
  eq_frame_info info;
  size_t size = 0;
  CHECK(eq_codec_create("fp32", &codec) == EQ_OK);
  CHECK(eq_workspace_create(1, &work) == EQ_OK);
  CHECK(eq_encode(codec, work, values, COUNT, 0, 0, 0, 0, frame, sizeof(frame), &size) ==
        EQ_OK);
  CHECK(eq_inspect_limited(frame, size, COUNT, &info) == EQ_OK && info.elements == COUNT);
  CHECK(eq_inspect_limited(frame, size, EQ_DEFAULT_MAX_ELEMENTS, &info) == EQ_OK);
  CHECK(eq_inspect_limited(frame, size, COUNT - 1, &info) == EQ_OUT_OF_RANGE);
  CHECK(strstr(eq_last_error(), "1000 values") != NULL);
  CHECK(strstr(eq_last_error(), "raise max_elements") != NULL);
  CHECK(eq_inspect_limited(NULL, 0, COUNT, &info) == EQ_INVALID_ARGUMENT);
  CHECK(eq_inspect_limited(frame, size, COUNT, NULL) == EQ_INVALID_ARGUMENT);
  CHECK(eq_inspect_limited(frame, size - 1, COUNT, &info) == EQ_CORRUPT_DATA);
  eq_workspace_destroy(work);
  eq_codec_destroy(codec);
}

/* What was sent and what is remembered are together what was given, and a stream that is saved
 * and loaded goes on with the same bytes. */
static void test_stream(const char* spec) {
  float values[COUNT], decoded[COUNT];
  double given[COUNT] = {0}, sent[COUNT] = {0};
  eq_codec *codec = NULL, *other = NULL;
  eq_workspace* work = NULL;
  eq_stream *stream = NULL, *twin = NULL, *stranger = NULL;
  uint8_t *frame, *again, *state;
  size_t room = 0, size = 0, size_again = 0, state_bytes = 0, i;
  uint64_t step;
  int lost = 0;
  CHECK(eq_codec_create(spec, &codec) == EQ_OK);
  CHECK(eq_codec_create("topk:ratio=0.5|ef", &other) == EQ_OK);
  CHECK(eq_workspace_create(1, &work) == EQ_OK);
  CHECK(eq_max_frame_bytes(codec, COUNT, &room) == EQ_OK);
  CHECK(eq_stream_create(codec, COUNT, &stream) == EQ_OK);
  CHECK(eq_stream_create(codec, COUNT, &twin) == EQ_OK);
  CHECK(eq_stream_create(other, COUNT, &stranger) == EQ_OK);
  eq_codec_destroy(other);
  CHECK(eq_stream_state_bytes(stream, &state_bytes) == EQ_OK && state_bytes > 4 * COUNT);
  frame = malloc(room);
  again = malloc(room);
  state = malloc(state_bytes);
  CHECK(frame != NULL && again != NULL && state != NULL);

  /* One message by itself would forget what it lost. */
  for (i = 0; i < COUNT; ++i) values[i] = 1;
  CHECK(eq_encode(codec, work, values, COUNT, 1, 0, 0, 0, frame, room, &size) ==
        EQ_INVALID_ARGUMENT);
  CHECK(strstr(eq_last_error(), "residual") != NULL);
  CHECK(strstr(eq_last_error(), "eq_stream_encode") != NULL);

  for (step = 0; step < 8; ++step) {
    for (i = 0; i < COUNT; ++i) {
      values[i] = (float)((double)((i + 1) * (step + 3) % 97) - 48);
      given[i] += values[i];
    }
    CHECK(eq_stream_encode(stream, work, values, COUNT, 1, step, 0, 0, frame, room, &size) ==
          EQ_OK);
    CHECK(eq_decode(work, frame, size, decoded, COUNT) == EQ_OK);
    for (i = 0; i < COUNT; ++i) sent[i] += decoded[i];
    if (step == 3) {
      CHECK(eq_stream_save(stream, state, state_bytes, &size_again) == EQ_OK);
      CHECK(size_again == state_bytes);
      CHECK(eq_stream_load(twin, state, state_bytes) == EQ_OK);
    } else if (step > 3) {
      CHECK(eq_stream_encode(twin, work, values, COUNT, 1, step, 0, 0, again, room,
                             &size_again) == EQ_OK);
      CHECK(size == size_again && memcmp(frame, again, size) == 0);
    }
  }
  /* The last of a state is its residual. */
  CHECK(eq_stream_save(stream, state, state_bytes, &size) == EQ_OK);
  memcpy(decoded, state + state_bytes - sizeof(decoded), sizeof(decoded));
  for (i = 0; i < COUNT; ++i) {
    CHECK(fabs(sent[i] + decoded[i] - given[i]) < 0.01);
    lost += fabsf(decoded[i]) > 1;
  }
  CHECK(lost > 100);

  CHECK(eq_stream_encode(stream, work, values, COUNT - 1, 1, 0, 0, 0, frame, room, &size) ==
        EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_encode(stream, work, values, COUNT, 1, 0, 0, 0, frame, room - 1, &size) ==
        EQ_BUFFER_TOO_SMALL);
  CHECK(eq_stream_save(stream, state, state_bytes - 1, &size) == EQ_BUFFER_TOO_SMALL);
  CHECK(eq_stream_load(stranger, state, state_bytes) == EQ_INVALID_ARGUMENT);
  CHECK(strstr(eq_last_error(), "topk:ratio=0.5") != NULL);
  eq_stream_destroy(stranger);
  state[state_bytes - 1] ^= 1;
  CHECK(eq_stream_load(stream, state, state_bytes) == EQ_CORRUPT_DATA);
  CHECK(eq_stream_load(stream, state, 3) == EQ_CORRUPT_DATA);

  CHECK(eq_stream_create(NULL, COUNT, &stranger) == EQ_INVALID_ARGUMENT && stranger == NULL);
  CHECK(eq_stream_create(codec, COUNT, NULL) == EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_create(codec, SIZE_MAX, &stranger) == EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_encode(NULL, work, values, COUNT, 0, 0, 0, 0, frame, room, &size) ==
        EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_encode(stream, NULL, values, COUNT, 0, 0, 0, 0, frame, room, &size) ==
        EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_encode(stream, work, NULL, COUNT, 0, 0, 0, 0, frame, room, &size) ==
        EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_state_bytes(NULL, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_state_bytes(stream, NULL) == EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_save(stream, NULL, 0, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_save(NULL, state, 0, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_load(stream, NULL, 0) == EQ_INVALID_ARGUMENT);
  CHECK(eq_stream_load(NULL, state, 0) == EQ_INVALID_ARGUMENT);
  free(frame);
  free(again);
  free(state);
  eq_stream_destroy(stream);
  eq_stream_destroy(twin);
  eq_stream_destroy(NULL);
  eq_workspace_destroy(work);
  eq_codec_destroy(codec);
}

static void test_bad_arguments(void) {
  eq_codec* codec = (eq_codec*)&codec;
  eq_workspace* work = (eq_workspace*)&work;
  eq_frame_info info;
  float value = 1;
  uint8_t frame[64];
  size_t size = 0;
  CHECK(eq_codec_create("nonsense", &codec) == EQ_INVALID_ARGUMENT && codec == NULL);
  CHECK(strstr(eq_last_error(), "fp32") != NULL); /* it lists the valid ones */
  CHECK(eq_codec_create(NULL, &codec) == EQ_INVALID_ARGUMENT);
  CHECK(eq_codec_create("fp32", NULL) == EQ_INVALID_ARGUMENT);
  CHECK(eq_workspace_create(0, &work) == EQ_INVALID_ARGUMENT && work == NULL);
  CHECK(eq_workspace_create(1025, &work) == EQ_INVALID_ARGUMENT);
  CHECK(eq_workspace_create(1, NULL) == EQ_INVALID_ARGUMENT);
  CHECK(eq_codec_spec(NULL) == NULL);

  CHECK(eq_codec_create("fp32", &codec) == EQ_OK);
  CHECK(eq_workspace_create(1, &work) == EQ_OK);
  CHECK(eq_max_frame_bytes(NULL, 1, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_max_frame_bytes(codec, 1, NULL) == EQ_INVALID_ARGUMENT);
  CHECK(eq_encode(NULL, work, &value, 1, 0, 0, 0, 0, frame, 64, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_encode(codec, NULL, &value, 1, 0, 0, 0, 0, frame, 64, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_encode(codec, work, NULL, 1, 0, 0, 0, 0, frame, 64, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_encode(codec, work, &value, 1, 0, 0, 0, 0, NULL, 64, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_encode(codec, work, &value, 1, 0, 0, 0, 0, frame, 64, NULL) == EQ_INVALID_ARGUMENT);
  CHECK(eq_encode(codec, work, &value, SIZE_MAX, 0, 0, 0, 0, frame, 64, &size) ==
        EQ_INVALID_ARGUMENT);
  CHECK(eq_max_frame_bytes(codec, SIZE_MAX, &size) == EQ_INVALID_ARGUMENT);
  CHECK(eq_inspect(NULL, 0, &info) == EQ_INVALID_ARGUMENT);
  CHECK(eq_inspect(frame, 64, NULL) == EQ_INVALID_ARGUMENT);
  CHECK(eq_inspect(frame, 0, &info) == EQ_CORRUPT_DATA);
  CHECK(eq_decode(NULL, frame, 64, &value, 1) == EQ_INVALID_ARGUMENT);
  CHECK(eq_decode(work, NULL, 64, &value, 1) == EQ_INVALID_ARGUMENT);
  CHECK(eq_decode(work, frame, 64, NULL, 1) == EQ_INVALID_ARGUMENT);
  CHECK(eq_decode_add(work, NULL, 64, 1, &value, 1) == EQ_INVALID_ARGUMENT);
  eq_workspace_destroy(work);
  eq_codec_destroy(codec);
  eq_workspace_destroy(NULL);
  eq_codec_destroy(NULL);
}

int main(void) {
  CHECK(strcmp(eq_last_error(), "") == 0);
  CHECK(strcmp(eq_version(), ELASTIQUANT_VERSION) == 0);
  CHECK(strcmp(eq_status_name(EQ_CORRUPT_DATA), "corrupt data") == 0);
  CHECK(strcmp(eq_status_name(-5), "unknown status") == 0);
  test_round_trip("fp32", 0);
  test_round_trip("fp16", 0.0005f);
  test_round_trip("bf16:rounding=stochastic", 0.008f);
  test_limit();
  test_stream("topk:ratio=0.05|ef");
  test_stream("qsgdv:bits=2|ef");
  test_bad_arguments();
  puts("the C interface works");
  return 0;
}
