/* ElastiQuant for C. It compresses a vector of floats into a frame, and adds frames up.
 *
 *   eq_codec* codec;
 *   eq_workspace* work;
 *   if (eq_codec_create("elastic:bits=4", &codec) != EQ_OK ||
 *       eq_workspace_create(1, &work) != EQ_OK) {
 *     fprintf(stderr, "%s\n", eq_last_error());
 *     return 1;
 *   }
 *   size_t room, size;
 *   eq_max_frame_bytes(codec, n, &room);
 *   uint8_t* frame = malloc(room);
 *   eq_encode(codec, work, gradient, n, seed, step, worker, 0, frame, room, &size);
 *   ... send `size` bytes ...
 *   eq_decode_add(work, frame, size, 0.25f, mean, n);
 *
 * This header is C99. The ABI is stable: functions and constants are only ever added. No C++
 * exception leaves a function. Handles are opaque; a null handle or pointer is refused with
 * EQ_INVALID_ARGUMENT and never followed.
 *
 * Many threads may use an eq_codec at once. An eq_workspace and an eq_stream serve one call at
 * a time.
 */
#ifndef ELASTIQUANT_ELASTIQUANT_H_
#define ELASTIQUANT_ELASTIQUANT_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define EQ_API
#else
#define EQ_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Every function below returns one of these, unless it says otherwise. On anything but EQ_OK
 * the text of eq_last_error() says what was wrong. Outputs are then unspecified, but nothing is
 * written beyond the sizes given. */
typedef int32_t eq_status;
enum {
  EQ_OK = 0,
  EQ_INVALID_ARGUMENT = 1, /* a value given is wrong: the text says which are right */
  EQ_CORRUPT_DATA = 2,     /* a frame fails a check: the text names the check */
  EQ_NON_FINITE = 3,       /* NaN or infinity in the values: the text gives the coordinate */
  EQ_OUT_OF_RANGE = 4,     /* finite, but not representable, such as a norm beyond fp32 */
  EQ_BUFFER_TOO_SMALL = 5, /* the output does not fit: the text gives the size needed */
  EQ_UNSUPPORTED = 6,      /* valid, but not in this build */
  EQ_NOT_FOUND = 7,        /* not returned by the functions below */
  EQ_IO = 8,               /* the system refused memory or a thread: the text has its words */
  EQ_UNAVAILABLE = 9,      /* not returned by the functions below */
  EQ_INTERNAL = 10         /* a bug in this library: please report the text */
};

/* Returns the version of the library that is running, such as "0.1.0". */
EQ_API const char* eq_version(void);

/* Returns the text of the last error on this thread, or "" before the first. It stays valid
 * until the next error on this thread. */
EQ_API const char* eq_last_error(void);

/* Returns a short name of a status, such as "corrupt data", or "unknown status" for any other
 * number. */
EQ_API const char* eq_status_name(eq_status status);

/* A scheme that turns floats into frames. */
typedef struct eq_codec eq_codec;

/* Makes the codec that `spec` names, such as "elastic:bits=4,levels=exp|rans". Destroy it with
 * eq_codec_destroy. On an error *codec is set to null.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  unknown codec, key, value or modifier (the text lists the valid ones)
 *   EQ_UNSUPPORTED       valid, but not in this build
 *   EQ_IO                out of memory */
EQ_API eq_status eq_codec_create(const char* spec, eq_codec** codec);

/* Destroys a codec. Null is allowed. */
EQ_API void eq_codec_destroy(eq_codec* codec);

/* Returns the canonical spec: every codec made from it gives the same bytes. The text is valid
 * as long as the codec is. Returns null if `codec` is null. */
EQ_API const char* eq_codec_spec(const eq_codec* codec);

/* Sets *bytes to the most bytes that a frame of n values can take.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer, or n > 2^32 - 1 */
EQ_API eq_status eq_max_frame_bytes(const eq_codec* codec, size_t n, size_t* bytes);

/* The threads and the scratch memory that encoding and decoding run on. Make one and reuse it:
 * once it has served a size, nothing is allocated any more (except by the eigenvalue solver of
 * atomo-svd). */
typedef struct eq_workspace eq_workspace;

/* Makes a workspace with 1 to 1024 threads; with 1 everything runs on the calling thread.
 * Frames do not depend on the number. Destroy the workspace with eq_workspace_destroy. On an
 * error *work is set to null.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer, or threads out of range
 *   EQ_IO                out of memory or threads */
EQ_API eq_status eq_workspace_create(int32_t threads, eq_workspace** work);

/* Destroys a workspace. Null is allowed. */
EQ_API void eq_workspace_destroy(eq_workspace* work);

/* Writes one frame of values[0, n) to frame[0, *size). Random numbers are a pure function of
 * (seed, step, worker, message, coordinate), so give each message of a worker and step another
 * `message`. The same arguments give the same bytes on every machine. `capacity` is the number
 * of bytes at `frame`, and at least what eq_max_frame_bytes says.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer (`values` may be null if n is 0), n > 2^32 - 1, or a
 *                        codec that remembers what a message lost (`topk|ef`, `dgc`), which
 *                        would be dropped: make an eq_stream of it instead
 *   EQ_NON_FINITE        a value is NaN or infinite: nothing can be sent
 *   EQ_OUT_OF_RANGE      a value or norm is too large for the codec
 *   EQ_BUFFER_TOO_SMALL  capacity is less than eq_max_frame_bytes says
 *   EQ_IO                out of memory */
EQ_API eq_status eq_encode(const eq_codec* codec, eq_workspace* work, const float* values,
                           size_t n, uint64_t seed, uint64_t step, uint64_t worker,
                           uint64_t message, void* frame, size_t capacity, size_t* size);

/* The messages of one sender, one after the other, for codecs that remember something of each
 * for the next: the error feedback of `topk|ef`, the velocity of `dgc`, the basis of
 * `powersgd`. (Any codec can have a stream. `dgc` sends from the first message on what it sends
 * after its warm-up.) It serves one call at a time, as a workspace does.
 *
 *   eq_stream* stream;
 *   eq_stream_create(codec, n, &stream);
 *   for each step: eq_stream_encode(stream, work, gradient, n, seed, step, worker, 0, frame,
 *                                   room, &size);
 *
 * Frames are decoded as any others are. */
typedef struct eq_stream eq_stream;

/* Makes a stream whose messages all have n values. It remembers nothing yet. The codec may be
 * destroyed before the stream. Destroy the stream with eq_stream_destroy. On an error *stream
 * is set to null.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer, or n > 2^32 - 1
 *   EQ_IO                out of memory */
EQ_API eq_status eq_stream_create(const eq_codec* codec, size_t n, eq_stream** stream);

/* Destroys a stream. Null is allowed. */
EQ_API void eq_stream_destroy(eq_stream* stream);

/* Does what eq_encode does, for the stream's next message and with any codec. After an error
 * nothing is remembered of the message. Returns what eq_encode returns, and
 *   EQ_INVALID_ARGUMENT  n is not that of the stream */
EQ_API eq_status eq_stream_encode(eq_stream* stream, eq_workspace* work, const float* values,
                                  size_t n, uint64_t seed, uint64_t step, uint64_t worker,
                                  uint64_t message, void* frame, size_t capacity, size_t* size);

/* Sets *bytes to the number of bytes that eq_stream_save writes, which is always the same for
 * one stream.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer */
EQ_API eq_status eq_stream_state_bytes(const eq_stream* stream, size_t* bytes);

/* Writes what is remembered to state[0, *size), with the codec's spec and a checksum.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer
 *   EQ_BUFFER_TOO_SMALL  capacity is less than eq_stream_state_bytes says */
EQ_API eq_status eq_stream_save(const eq_stream* stream, void* state, size_t capacity,
                                size_t* size);

/* Goes on where a stream was saved: what this stream encodes next has the same bytes. After an
 * error the stream is as it was.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer, or the state of another codec or number of values
 *   EQ_CORRUPT_DATA      not a state, cut short, or damaged
 *   EQ_IO                out of memory */
EQ_API eq_status eq_stream_load(eq_stream* stream, const void* state, size_t bytes);

/* What a frame says of itself. */
typedef struct eq_frame_info {
  char codec[32];       /* name of a codec with frames of this format, which need not be the
                           one that made it; the bytes behind it are 0 */
  uint64_t elements;    /* number of values */
  uint64_t bytes;       /* size of the frame */
  uint64_t stream_key;  /* key of its random numbers */
  uint64_t reserved[4]; /* 0 */
} eq_frame_info;

/* Checks the header and the checksum of a frame and fills in *info.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer
 *   EQ_CORRUPT_DATA      not a frame, cut short, or damaged
 *   EQ_UNSUPPORTED       a frame of another version, or of a codec that this build lacks
 *   EQ_IO                out of memory */
EQ_API eq_status eq_inspect(const void* frame, size_t bytes, eq_frame_info* info);

/* 2^28 values, a GiB of floats. This is more than training sends in one message, and less than
 * what brings a machine down. */
#define EQ_DEFAULT_MAX_ELEMENTS ((uint64_t)1 << 28)

/* Does what eq_inspect does, for frames that you do not trust. Call it before you allocate
 * info->elements floats, as a frame of 44 bytes may claim 2^32 - 1 of them. `max_elements` is
 * how many you accept, such as EQ_DEFAULT_MAX_ELEMENTS. Returns what eq_inspect returns, and
 *   EQ_OUT_OF_RANGE      the frame claims more than max_elements */
EQ_API eq_status eq_inspect_limited(const void* frame, size_t bytes, uint64_t max_elements,
                                    eq_frame_info* info);

/* Sets values[i] to the frame's value i. Frames are decoded without the codec that made them. n
 * must be the frame's number of values.
 *   EQ_OK
 *   EQ_INVALID_ARGUMENT  a null pointer (`values` may be null if n is 0), or the wrong n
 *   EQ_CORRUPT_DATA      not a frame, cut short, or damaged
 *   EQ_UNSUPPORTED       a frame of another version, or of a codec that this build lacks
 *   EQ_IO                out of memory */
EQ_API eq_status eq_decode(eq_workspace* work, const void* frame, size_t bytes, float* values,
                           size_t n);

/* Adds weight * the frame's value i to values[i], in one pass. Returns what eq_decode
 * returns. */
EQ_API eq_status eq_decode_add(eq_workspace* work, const void* frame, size_t bytes,
                               float weight, float* values, size_t n);

#ifdef __cplusplus
}
#endif

#endif /* ELASTIQUANT_ELASTIQUANT_H_ */
