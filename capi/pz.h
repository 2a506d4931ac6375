/* pz: lossless compression in a format that CPUs and GPUs decode equally well.
 *
 * Every function that can fail returns PZ_STATUS_OK, which is 0, or the kind of failure;
 * pz_error_message() then says in words what failed. NULL stands for the default options. A
 * pointer to bytes may be NULL if their number is 0. Two threads must not use an object at the
 * same time, except options that no thread changes. To release what a function made, call the
 * function with the same prefix that ends with _free; it also takes NULL.
 *
 * Made by cbindgen from capi/src; `PZ_WRITE_HEADER=1 cargo test -p pz-capi` makes it again.
 */


#ifndef PZ_H
#define PZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef struct pz_options pz_options;
typedef struct pz_decode_options pz_decode_options;
typedef struct pz_encoder pz_encoder;
typedef struct pz_decoder pz_decoder;
typedef struct pz_reader pz_reader;

/**
 * The result of a call: success, or the kind of failure.
 */
typedef enum {
  /**
   * Done.
   */
  PZ_STATUS_OK = 0,
  /**
   * Reading or writing failed.
   */
  PZ_STATUS_IO = 1,
  /**
   * The input does not begin with a pz frame.
   */
  PZ_STATUS_NOT_PZ = 2,
  /**
   * The input breaks a rule of the format, or a checksum does not agree.
   */
  PZ_STATUS_CORRUPT = 3,
  /**
   * The input ends in the middle of a frame.
   */
  PZ_STATUS_TRUNCATED = 4,
  /**
   * The input uses a part of the format that this version does not know.
   */
  PZ_STATUS_UNSUPPORTED = 5,
  /**
   * The contents are longer than the options permit.
   */
  PZ_STATUS_OUTPUT_LIMIT = 6,
  /**
   * The work needs more memory than the options permit.
   */
  PZ_STATUS_MEMORY_LIMIT = 7,
  /**
   * The system refused memory.
   */
  PZ_STATUS_OUT_OF_MEMORY = 8,
  /**
   * There is no such level, pipeline, filter, block size or window.
   */
  PZ_STATUS_INVALID_OPTION = 9,
  /**
   * The input does not have the length that was declared.
   */
  PZ_STATUS_CHANGED = 10,
  /**
   * A range begins or ends outside the contents.
   */
  PZ_STATUS_INVALID_RANGE = 11,
  /**
   * The result does not fit into the buffer.
   */
  PZ_STATUS_BUFFER_TOO_SMALL = 12,
  /**
   * A pointer is NULL that must not be, or an object is used after its end.
   */
  PZ_STATUS_INVALID_ARGUMENT = 13,
  /**
   * A bug in pz.
   */
  PZ_STATUS_INTERNAL = 14,
  /**
   * The device is missing, or does not open.
   */
  PZ_STATUS_NO_DEVICE = 15,
  /**
   * The input needs a module, a program by its author, that the options do not allow to run.
   */
  PZ_STATUS_UNTRUSTED_MODULE = 16,
} pz_status;

/**
 * A function that takes `len` bytes of `data`. It returns the number of bytes that it took, or a negative number for a
 * failure, which `pz_error_message` then names. As for all callbacks, `context` is the pointer that was given with the
 * function.
 */
typedef ptrdiff_t (*pz_write_fn)(void *context, const void *data, size_t len);

/**
 * A function that puts up to `len` bytes into `buffer`. It returns their number, 0 at the end, or a negative number
 * for a failure, as above.
 */
typedef ptrdiff_t (*pz_read_fn)(void *context, void *buffer, size_t len);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * One line about the last failure in this thread. Valid until the next call of a pz function in this thread.
 */
const char *pz_error_message(void);

/**
 * The version of pz, such as "0.1.0".
 */
const char *pz_version(void);

/**
 * Makes default options.
 */
pz_options *pz_options_new(void);

/**
 * Releases options.
 *
 * Requirements:
 * `options` is NULL or came from `pz_options_new`, and is not used afterwards.
 */
void pz_options_free(pz_options *options);

/**
 * Sets the level: 1 (fastest) to 9 (smallest). The default is 3.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use.
 */
pz_status pz_options_level(pz_options *options, uint32_t level);

/**
 * Sets the pipeline instead of the level's: "lzh", "lzf", "bwt", "fse" or "store".
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use. `pipeline` is text that ends with a zero byte.
 */
pz_status pz_options_pipeline(pz_options *options,
                              const char *pipeline);

/**
 * Rearranges typed data first: "f32", "bf16", "i16", "i64x3" and so on, chains such as
 * "delta8,zigzag8,transpose8", "auto", which looks at each block, or "none", the default.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use. `filter` is text that ends with a zero byte.
 */
pz_status pz_options_filter(pz_options *options,
                            const char *filter);

/**
 * Sets the block size instead of the level's, in bytes: a power of two.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use.
 */
pz_status pz_options_block_size(pz_options *options, uint64_t block_size);

/**
 * Sets the window instead of the level's, in bytes: a power of two.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use.
 */
pz_status pz_options_window(pz_options *options, uint64_t window);

/**
 * Also looks for repetitions of earlier blocks, up to `bytes` back. The default is 0, which turns this off; for level
 * 9 without a filter it is four blocks, 64 MiB. Compression and decompression take about that much more memory.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use.
 */
pz_status pz_options_long_distance(pz_options *options,
                                   uint64_t bytes);

/**
 * Sets whether the contents decide where frames end; the default is no. After a change of the contents, most of the
 * output then stays the same. The output gets a few percent larger.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use.
 */
pz_status pz_options_rsyncable(pz_options *options,
                               bool rsyncable);

/**
 * Sets the number of threads; 0, the default, means one for each core. The result does not depend on it.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use.
 */
pz_status pz_options_threads(pz_options *options,
                             size_t threads);

/**
 * Limits the memory to take beside the caller's buffers, in bytes. The default is 2 GiB.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use.
 */
pz_status pz_options_memory(pz_options *options, uint64_t memory);

/**
 * Declares the length of the input in bytes, for readers that cannot seek.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use.
 */
pz_status pz_options_content_size(pz_options *options, uint64_t content_size);

/**
 * Sets a device that works beside the threads: "cuda", "opencl" or "webgpu", with a number after a colon if there are
 * several; "auto" for a GPU where that should save time; or "cpu", the default, for none. A named device must exist.
 * The first call that names it opens it for the whole process. The result does not depend on the device.
 *
 * Requirements:
 * `options` came from `pz_options_new` and is not in use. `device` is text that ends with a zero byte.
 */
pz_status pz_options_device(pz_options *options,
                            const char *device);

/**
 * Makes default options.
 */
pz_decode_options *pz_decode_options_new(void);

/**
 * Releases options.
 *
 * Requirements:
 * `options` is NULL or came from `pz_decode_options_new`, and is not used afterwards.
 */
void pz_decode_options_free(pz_decode_options *options);

/**
 * Sets the number of threads; 0, the default, means one for each core.
 *
 * Requirements:
 * `options` came from `pz_decode_options_new` and is not in use.
 */
pz_status pz_decode_options_threads(pz_decode_options *options, size_t threads);

/**
 * Limits the bytes of contents, for untrusted input.
 *
 * Requirements:
 * `options` came from `pz_decode_options_new` and is not in use.
 */
pz_status pz_decode_options_max_output(pz_decode_options *options, uint64_t max_output);

/**
 * Sets whether all modules in the input may run; by default none may. Modules are programs by the author of the input.
 * They can access only their input and output, in bounded time and memory.
 *
 * Requirements:
 * `options` came from `pz_decode_options_new` and is not in use.
 */
pz_status pz_decode_options_allow_modules(pz_decode_options *options,
                                          bool allow);

/**
 * Limits the memory to take beside the caller's buffers, in bytes. The default is 2 GiB.
 *
 * Requirements:
 * `options` came from `pz_decode_options_new` and is not in use.
 */
pz_status pz_decode_options_max_memory(pz_decode_options *options, uint64_t max_memory);

/**
 * Sets a device that works beside the threads, as `pz_options_device` does.
 *
 * Requirements:
 * `options` came from `pz_decode_options_new` and is not in use. `device` is text that ends with a zero byte.
 */
pz_status pz_decode_options_device(pz_decode_options *options,
                                   const char *device);

/**
 * Compresses `len` bytes of `data` to `buffer`, which has `capacity` bytes, and stores the length of the result. Less
 * capacity than `pz_compress_bound` may be too little; after a failure the buffer may contain anything.
 *
 * Requirements:
 * The pointers point to that many bytes, which do not overlap, or are NULL if there are none; `options` is NULL or
 * came from `pz_options_new`.
 */
pz_status pz_compress(const void *data,
                      size_t len,
                      void *buffer,
                      size_t capacity,
                      size_t *written,
                      const pz_options *options);

/**
 * The most bytes that compressing `len` bytes can give, with any options.
 */
size_t pz_compress_bound(size_t len);

/**
 * Decompresses `len` bytes of `data` to `buffer`, which has `capacity` bytes, and stores the length of the contents.
 * After a failure the buffer may contain anything.
 *
 * Requirements:
 * The pointers point to that many bytes, which do not overlap, or are NULL if there are none; `options` is NULL or
 * came from `pz_decode_options_new`.
 */
pz_status pz_decompress(const void *data,
                        size_t len,
                        void *buffer,
                        size_t capacity,
                        size_t *written,
                        const pz_decode_options *options);

/**
 * Stores the length of the contents of `len` bytes of `data`. Decodes nothing. If the data are not trusted, compare
 * the result with a limit before you allocate that many bytes.
 *
 * Requirements:
 * `data` points to `len` bytes, or is NULL if there are none.
 */
pz_status pz_content_size(const void *data,
                          size_t len,
                          uint64_t *size);

/**
 * Makes an encoder that passes its output to `write`, in the thread that calls the encoder.
 *
 * Requirements:
 * Until the encoder is released, `context` is valid for `write` in every thread that uses the encoder. `options` is
 * NULL or came from `pz_options_new`.
 */
pz_status pz_encoder_new(pz_write_fn write,
                         void *context,
                         const pz_options *options,
                         pz_encoder **encoder);

/**
 * Compresses `len` bytes of `data`. The callback may get part of the result later.
 *
 * Requirements:
 * `encoder` came from `pz_encoder_new`, and `data` points to `len` bytes.
 */
pz_status pz_encoder_write(pz_encoder *encoder, const void *data, size_t len);

/**
 * Compresses everything so far and passes it to the callback, so that it can be read. Many flushes make the output
 * larger.
 *
 * Requirements:
 * `encoder` came from `pz_encoder_new`.
 */
pz_status pz_encoder_flush(pz_encoder *encoder);

/**
 * Compresses the rest and ends the output, which is incomplete without this. The encoder can then only be released.
 *
 * Requirements:
 * `encoder` came from `pz_encoder_new`.
 */
pz_status pz_encoder_finish(pz_encoder *encoder);

/**
 * Releases an encoder. An output that it has not finished stays incomplete.
 *
 * Requirements:
 * `encoder` is NULL or came from `pz_encoder_new`, and is not used afterwards.
 */
void pz_encoder_free(pz_encoder *encoder);

/**
 * Makes a decoder that gets its input from `read`, in the thread that calls the decoder, and reads the first header.
 * The decoder reads ahead of the contents that it returns.
 *
 * Requirements:
 * Until the decoder is released, `context` is valid for `read` in every thread that uses the decoder. `options` is
 * NULL or came from `pz_decode_options_new`.
 */
pz_status pz_decoder_new(pz_read_fn read,
                         void *context,
                         const pz_decode_options *options,
                         pz_decoder **decoder);

/**
 * Puts up to `len` bytes of contents into `buffer` and stores their number. The number is 0 only at the end, or if
 * `len` is 0. The bytes are checked; only at the end is it known that the contents are complete.
 *
 * Requirements:
 * `decoder` came from `pz_decoder_new`, and `buffer` points to `len` bytes.
 */
pz_status pz_decoder_read(pz_decoder *decoder,
                          void *buffer,
                          size_t len,
                          size_t *count);

/**
 * Releases a decoder.
 *
 * Requirements:
 * `decoder` is NULL or came from `pz_decoder_new`, and is not used afterwards.
 */
void pz_decoder_free(pz_decoder *decoder);

/**
 * Opens a compressed file, and checks its headers, indices and footers.
 *
 * Requirements:
 * `path` is text in UTF-8 that ends with a zero byte; `options` is NULL or came from `pz_decode_options_new`.
 */
pz_status pz_reader_open(const char *path,
                         const pz_decode_options *options,
                         pz_reader **reader);

/**
 * Stores the length of the contents in bytes.
 *
 * Requirements:
 * `reader` came from `pz_reader_open`.
 */
pz_status pz_reader_size(pz_reader *reader, uint64_t *size);

/**
 * Reads `len` bytes of the contents, from `offset` on, into `buffer`. Decodes blocks in parallel.
 *
 * Requirements:
 * `reader` came from `pz_reader_open`, and `buffer` points to `len` bytes.
 */
pz_status pz_reader_read(pz_reader *reader, uint64_t offset, void *buffer, size_t len);

/**
 * Releases a reader, and closes its file.
 *
 * Requirements:
 * `reader` is NULL or came from `pz_reader_open`, and is not used afterwards.
 */
void pz_reader_free(pz_reader *reader);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PZ_H */
