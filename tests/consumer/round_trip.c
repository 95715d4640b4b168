/* Encodes a vector from C and adds what the frame decodes to, with a weight. */
#include <stdio.h>
#include <stdlib.h>

#include "elastiquant/elastiquant.h"

#define COUNT 1000

int main(void) {
  float values[COUNT], sum[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    values[i] = (float)(i - COUNT / 2);
    sum[i] = 1.0f;
  }

  eq_codec* codec = NULL;
  eq_workspace* work = NULL;
  size_t room = 0, size = 0;
  if (eq_codec_create("fp32", &codec) != EQ_OK || eq_workspace_create(1, &work) != EQ_OK ||
      eq_max_frame_bytes(codec, COUNT, &room) != EQ_OK) {
    fprintf(stderr, "%s\n", eq_last_error());
    return 1;
  }
  uint8_t* frame = malloc(room);
  if (frame == NULL) return 1;
  if (eq_encode(codec, work, values, COUNT, 1, 2, 3, 0, frame, room, &size) != EQ_OK ||
      eq_decode_add(work, frame, size, 0.5f, sum, COUNT) != EQ_OK) {
    fprintf(stderr, "%s\n", eq_last_error());
    return 1;
  }
  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) wrong += sum[i] != 1.0f + 0.5f * values[i];
  printf("ElastiQuant %s: %zu bytes, %d wrong\n", eq_version(), size, wrong);
  free(frame);
  eq_workspace_destroy(work);
  eq_codec_destroy(codec);
  return wrong != 0;
}
