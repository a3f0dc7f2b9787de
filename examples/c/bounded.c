/* Messages that come in time rather than whole, and a write to the peer's memory, with
 * lacuna.h: receives that complete into a queue by their deadline, with a map of what is
 * missing.
 *
 *     bounded server
 *     bounded client 127.0.0.1:7413
 *
 * The client sends STEPS messages, and leaves a part of every fourth out, as a path with
 * loss would. The server takes each for what it is when its time is over. Then the client
 * writes to a region of the server, whose key it was told in a message of the class
 * critical: those are repaired, whatever the mode of the others.
 */

#define _POSIX_C_SOURCE 200809L

#include <lacuna.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 8, STEP_BYTES = 1000 * 1000, PART_BYTES = 100 * 1000, GAPS_MAX = 64 };
enum { TABLE_BYTES = 300 * 1000, TABLE_AT = 4096, REGION_BYTES = 1 << 20 };
enum { STEP_MS = 300, SEND_MS = 600, TIMEOUT_MS = 20000 };

static unsigned char bytes[STEP_BYTES], region_bytes[REGION_BYTES];

static void check(int result, const char *call)
{
    if (result != LACUNA_OK) {
        fprintf(stderr, "%s: %s\n", call, lacuna_last_error());
        exit(1);
    }
}

static unsigned char byte_of(unsigned step, size_t at)
{
    return (unsigned char)(1 + (step * 17 + at / 7) % 255);
}

/* Every byte is the sender's, or, in a gap, zero. */
static void check_step(unsigned step, const struct lacuna_range *gaps, size_t count)
{
    size_t at, gap = 0;
    for (at = 0; at < STEP_BYTES; at++) {
        int is_missing;
        while (gap < count && at >= gaps[gap].offset + gaps[gap].length)
            gap++;
        is_missing = gap < count && at >= gaps[gap].offset;
        if (bytes[at] != (is_missing ? 0 : byte_of(step, at))) {
            fprintf(stderr, "step %u is wrong at byte %zu\n", step, at);
            exit(1);
        }
    }
}

/* Takes the next step when it is over, and returns how many bytes it lacks. */
static size_t take_step(struct lacuna_completion_queue *queue, unsigned step)
{
    struct lacuna_completion done;
    struct lacuna_range gaps[GAPS_MAX];
    size_t count = 0, gap, missing = 0;
    check(lacuna_completion_queue_poll(queue, &done, 1, TIMEOUT_MS, &count),
          "lacuna_completion_queue_poll");
    if (count != 1 || done.user_data != step || done.ended.reason == LACUNA_REASON_FAILED) {
        fprintf(stderr, "step %u: %s\n", step, count ? lacuna_last_error() : "nothing came");
        exit(1);
    }
    count = 0;
    if (done.map)
        check(lacuna_map_gaps(done.map, gaps, GAPS_MAX, &count), "lacuna_map_gaps");
    if (count > GAPS_MAX) {
        fprintf(stderr, "step %u has %zu gaps\n", step, count);
        exit(1);
    }
    for (gap = 0; gap < count; gap++)
        missing += gaps[gap].length;
    printf("step %u: %zu of %d bytes missing, reason %u\n", step, missing, (int)STEP_BYTES,
           (unsigned)done.ended.reason);
    check_step(step, gaps, count);
    lacuna_map_free(done.map);
    return missing;
}

static void serve(const char *address)
{
    struct lacuna_context *context = NULL;
    struct lacuna_listener *listener = NULL;
    struct lacuna_connection *connection = NULL, *critical = NULL;
    struct lacuna_completion_queue *queue = NULL;
    struct lacuna_region *region = NULL;
    struct lacuna_receive_options options;
    struct lacuna_written written;
    unsigned step, lossy = 0;
    uint16_t port = 0;
    uint32_t key = 0;
    size_t at;
    check(lacuna_context_new(NULL, &context), "lacuna_context_new");
    check(lacuna_listener_new(context, address, NULL, &listener), "lacuna_listener_new");
    check(lacuna_listener_port(listener, &port), "lacuna_listener_port");
    printf("listening on port %u\n", (unsigned)port);
    fflush(stdout);
    check(lacuna_listener_accept(listener, &connection), "lacuna_listener_accept");
    check(lacuna_connection_class(connection, LACUNA_CLASS_CRITICAL, &critical),
          "lacuna_connection_class");
    check(lacuna_region_new(context, region_bytes, REGION_BYTES, NULL, &region),
          "lacuna_region_new");
    check(lacuna_region_key(region, &key), "lacuna_region_key");
    /* Both ends have the same byte order; programs for others write it byte by byte. */
    check(lacuna_write(critical, &key, sizeof(key), NULL, TIMEOUT_MS), "lacuna_write");

    check(lacuna_completion_queue_new(context, STEPS, &queue), "lacuna_completion_queue_new");
    check(lacuna_complete_to(connection, queue), "lacuna_complete_to");
    memset(&options, 0, sizeof(options));
    options.deadline_us = STEP_MS * 1000;
    options.missing = LACUNA_MISSING_ZERO;
    for (step = 0; step < STEPS; step++) {
        check(lacuna_queue_receive(connection, bytes, STEP_BYTES, &options, step),
              "lacuna_queue_receive");
        lossy += take_step(queue, step) > 0;
    }
    printf("received %d messages, %u with gaps, every byte checked\n", (int)STEPS, lossy);

    check(lacuna_wait_written(connection, TIMEOUT_MS, &written, NULL), "lacuna_wait_written");
    for (at = 0; at < TABLE_BYTES; at++)
        if (region_bytes[TABLE_AT + at] != byte_of(STEPS, at) && written.is_complete) {
            fprintf(stderr, "the table is wrong at byte %zu\n", at);
            exit(1);
        }
    printf("%u: %llu of %llu bytes were written at %llu\n", (unsigned)written.immediate,
           (unsigned long long)written.bytes, (unsigned long long)written.length,
           (unsigned long long)written.address);
    check(lacuna_write(critical, "done", 4, NULL, TIMEOUT_MS), "lacuna_write");
    lacuna_connection_free(connection);
    lacuna_completion_queue_free(queue);
    lacuna_region_free(region);
    lacuna_listener_free(listener);
    lacuna_context_free(context);
}

static void send_step(struct lacuna_connection *connection, unsigned step)
{
    struct lacuna_send *send = NULL;
    size_t at;
    check(lacuna_send_start_offered(connection, bytes, STEP_BYTES, NULL, SEND_MS, &send),
          "lacuna_send_start_offered");
    for (at = 0; at < STEP_BYTES; at += PART_BYTES) {
        size_t byte;
        for (byte = at; byte < at + PART_BYTES; byte++)
            bytes[byte] = byte_of(step, byte);
        if (step % 4 == 3 && at == 3 * PART_BYTES)
            continue;
        check(lacuna_send_offer(send, at, PART_BYTES), "lacuna_send_offer");
    }
    /* What lacks a part goes on until its deadline. */
    if (lacuna_send_wait(send) != LACUNA_OK)
        printf("step %u: %s\n", step, lacuna_last_error());
    check(lacuna_send_free(send), "lacuna_send_free");
}

static void send_all(const char *peer)
{
    struct lacuna_settings *settings = NULL;
    struct lacuna_context *context = NULL;
    struct lacuna_connection *connection = NULL, *critical = NULL;
    uint32_t key = 0, immediate = STEPS;
    unsigned step;
    char done[4];
    size_t at;
    check(lacuna_settings_new(&settings), "lacuna_settings_new");
    check(lacuna_settings_set(settings, "mode", "bounded"), "mode");
    check(lacuna_settings_set(settings, "classes", "critical"), "classes");
    check(lacuna_settings_set(settings, "one_sided", "on"), "one_sided");
    check(lacuna_context_new(settings, &context), "lacuna_context_new");
    check(lacuna_connect(context, peer, settings, &connection), "lacuna_connect");
    check(lacuna_connection_class(connection, LACUNA_CLASS_CRITICAL, &critical),
          "lacuna_connection_class");
    check(lacuna_read(critical, &key, sizeof(key), TIMEOUT_MS, NULL), "lacuna_read");
    for (step = 0; step < STEPS; step++)
        send_step(connection, step);
    for (at = 0; at < TABLE_BYTES; at++)
        bytes[at] = byte_of(STEPS, at);
    check(lacuna_remote_write(connection, key, TABLE_AT, bytes, TABLE_BYTES, &immediate, TIMEOUT_MS),
          "lacuna_remote_write");
    check(lacuna_read(critical, done, sizeof(done), TIMEOUT_MS, NULL), "lacuna_read");
    puts("the peer has it all");
    /* Who receives last stays until the peer has gone, which waits to hear that it came. */
    if (lacuna_read(critical, done, sizeof(done), TIMEOUT_MS, NULL) != LACUNA_PEER)
        exit(1);
    lacuna_connection_free(connection);
    lacuna_context_free(context);
    lacuna_settings_free(settings);
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "server") == 0)
        serve(argc > 2 ? argv[2] : "[::]:7413");
    else if (argc == 3 && strcmp(argv[1], "client") == 0)
        send_all(argv[2]);
    else {
        fprintf(stderr, "usage: bounded server [ADDRESS:PORT]\n"
                        "       bounded client HOST:PORT\n");
        return 2;
    }
    return 0;
}
