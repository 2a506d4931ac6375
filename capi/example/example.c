/* Compresses a text in one call and as a stream, reads a part of a file, and looks at an error.
 * Usage: example FOLDER, which gets the file example.pz. */

#include <pz.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program if a call failed. */
static void check(pz_status status, const char *what) {
    if (status != PZ_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", what, pz_error_message());
        exit(1);
    }
}

static void expect(int is_true, const char *what) {
    if (!is_true) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

static ptrdiff_t write_file(void *file, const void *data, size_t len) {
    size_t written = fwrite(data, 1, len, file);
    return written == 0 && len > 0 ? -1 : (ptrdiff_t)written;
}

static ptrdiff_t read_file(void *file, void *buffer, size_t len) {
    size_t read = fread(buffer, 1, len, file);
    return read == 0 && ferror((FILE *)file) ? -1 : (ptrdiff_t)read;
}

/* Fails like a full disk. */
static ptrdiff_t fail(void *context, const void *data, size_t len) {
    (void)context, (void)data, (void)len;
    return -28;
}

/* In one call, at level 6. */
static void one_shot(const char *text, size_t len) {
    pz_options *options = pz_options_new();
    check(pz_options_level(options, 6), "level");
    size_t capacity = pz_compress_bound(len), small_len, restored_len;
    char *small = malloc(capacity), *restored = malloc(len);
    expect(small != NULL && restored != NULL, "memory");
    check(pz_compress(text, len, small, capacity, &small_len, options), "compress");

    uint64_t size;
    check(pz_content_size(small, small_len, &size), "content size");
    expect(size == len, "content size");
    check(pz_decompress(small, small_len, restored, len, &restored_len, NULL), "decompress");
    expect(restored_len == len && memcmp(restored, text, len) == 0, "contents");
    printf("%zu bytes became %zu\n", len, small_len);

    /* Errors: a status to act on, and words for people. */
    expect(pz_decompress(small, small_len, restored, len - 1, &restored_len, NULL) == PZ_STATUS_BUFFER_TOO_SMALL,
           "a buffer that is too small");
    small[small_len / 2] ^= 1;
    expect(pz_decompress(small, small_len, restored, len, &restored_len, NULL) == PZ_STATUS_CORRUPT, "damage");
    printf("after damage: %s\n", pz_error_message());
    expect(pz_options_level(options, 10) == PZ_STATUS_INVALID_OPTION, "a level that does not exist");
    expect(pz_options_level(NULL, 1) == PZ_STATUS_INVALID_ARGUMENT, "no options");
    /* Devices: a GPU where that should save time; then a name that no device has. */
    check(pz_options_device(options, "auto"), "device");
    expect(pz_options_device(options, "abacus") == PZ_STATUS_INVALID_OPTION, "a device that does not exist");
    expect(pz_options_device(options, "opencl:99") == PZ_STATUS_NO_DEVICE, "a device that is not there");
    check(pz_options_device(options, "cpu"), "device");
    free(small);
    free(restored);
    pz_options_free(options);
}

/* As a stream, to a file and back. */
static void stream(const char *path, const char *text, size_t len) {
    pz_options *options = pz_options_new();
    check(pz_options_block_size(options, 1 << 16), "block size");
    FILE *file = fopen(path, "wb");
    expect(file != NULL, path);
    pz_encoder *encoder;
    check(pz_encoder_new(write_file, file, options, &encoder), "encoder");
    for (size_t at = 0; at < len; at += 1000) {
        check(pz_encoder_write(encoder, text + at, len - at < 1000 ? len - at : 1000), "write");
    }
    check(pz_encoder_finish(encoder), "finish");
    expect(pz_encoder_write(encoder, text, 1) == PZ_STATUS_INVALID_ARGUMENT, "writing after the end");
    pz_encoder_free(encoder);
    expect(fclose(file) == 0, "close");

    file = fopen(path, "rb");
    expect(file != NULL, path);
    pz_decoder *decoder;
    check(pz_decoder_new(read_file, file, NULL, &decoder), "decoder");
    char part[777];
    size_t count, at = 0;
    do {
        check(pz_decoder_read(decoder, part, sizeof part, &count), "read");
        expect(at + count <= len && memcmp(part, text + at, count) == 0, "contents of the stream");
        at += count;
    } while (count > 0);
    expect(at == len, "length of the stream");
    pz_decoder_free(decoder);
    fclose(file);

    /* If a callback fails, it returns a number of its own, which every later call repeats. */
    check(pz_encoder_new(fail, NULL, options, &encoder), "encoder");
    check(pz_encoder_write(encoder, text, 1000), "write");
    for (int i = 0; i < 2; i++) {
        expect(pz_encoder_flush(encoder) == PZ_STATUS_IO, "a callback that fails");
        expect(strcmp(pz_error_message(), "the write callback failed with -28") == 0, pz_error_message());
    }
    expect(pz_encoder_finish(encoder) == PZ_STATUS_IO, "finishing after a failure");
    expect(strcmp(pz_error_message(), "the write callback failed with -28") == 0, pz_error_message());
    pz_encoder_free(encoder);
    pz_options_free(options);
}

/* A part of the file, without the rest. */
static void range(const char *path, const char *text, size_t len) {
    pz_reader *reader;
    check(pz_reader_open(path, NULL, &reader), path);
    uint64_t size;
    check(pz_reader_size(reader, &size), "size");
    expect(size == len, "size");
    char part[100];
    check(pz_reader_read(reader, 123456, part, sizeof part), "range");
    expect(memcmp(part, text + 123456, sizeof part) == 0, "contents of the range");
    expect(pz_reader_read(reader, len - 1, part, 2) == PZ_STATUS_INVALID_RANGE, "a range beyond the end");
    pz_reader_free(reader);
    expect(pz_reader_open("/no/such/file.pz", NULL, &reader) == PZ_STATUS_IO, "a missing file");
}

int main(int count, char **arguments) {
    expect(count == 2, "usage: example FOLDER");
    char path[4096];
    expect(snprintf(path, sizeof path, "%s/example.pz", arguments[1]) < (int)sizeof path, "a long name");
    size_t len = 500000;
    char *text = malloc(len);
    expect(text != NULL, "memory");
    for (size_t i = 0; i < len; i++) {
        text[i] = "what is said three times is true; "[(i + i / 1000) % 34];
    }
    one_shot(text, len);
    stream(path, text, len);
    range(path, text, len);
    free(text);
    printf("pz %s works\n", pz_version());
    return 0;
}
