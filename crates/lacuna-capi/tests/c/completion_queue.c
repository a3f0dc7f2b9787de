/* Completion queues: what was posted to connections and classes completes into one place,
 * with the number that the program gave it, also when it fails or its connection goes.
 *
 *     completion_queue threads|manual
 */

#define _POSIX_C_SOURCE 200809L

#include <poll.h>

#include "ends.h"

enum { MESSAGES = 20, BYTES = 30000, ENTRIES = 64 };

static unsigned char data[BYTES], buffers[MESSAGES][BYTES];

static struct lacuna_completion_queue *queue_of(struct lacuna_context *context, uint32_t entries)
{
    struct lacuna_completion_queue *queue = NULL;
    CHECK(lacuna_completion_queue_new(context, entries, &queue) == LACUNA_OK);
    return queue;
}

/* Takes `count` completions, and brings both ends on meanwhile. */
static void take(struct ends *ends, struct lacuna_completion_queue *queue,
                 struct lacuna_completion *completions, size_t count)
{
    size_t taken = 0, more = 77;
    while (taken < count) {
        CHECK(lacuna_completion_queue_poll(queue, completions + taken, count - taken, 0, &more) ==
              LACUNA_OK);
        CHECK(more <= count - taken);
        taken += more;
        progress(ends);
    }
}

static void is_empty(struct lacuna_completion_queue *queue)
{
    struct lacuna_completion completion;
    size_t count = 77;
    CHECK(lacuna_completion_queue_poll(queue, &completion, 1, 0, &count) == LACUNA_OK && count == 0);
    CHECK(lacuna_completion_queue_poll(queue, &completion, 1, 5, &count) == LACUNA_OK && count == 0);
    CHECK(lacuna_completion_queue_poll(queue, NULL, 0, 0, &count) == LACUNA_OK && count == 0);
}

static void messages(struct ends *ends, struct lacuna_connection *from, struct lacuna_connection *to,
                     struct lacuna_completion_queue *sent, struct lacuna_completion_queue *received)
{
    struct lacuna_completion completions[MESSAGES];
    uint32_t number, seen = 0;
    for (number = 0; number < MESSAGES; number++) {
        memset(buffers[number], 0xaa, BYTES);
        CHECK(lacuna_queue_receive(to, buffers[number], BYTES, NULL, 100 + number) == LACUNA_OK);
        CHECK(lacuna_queue_send(from, data + number, BYTES - 100, &number, WAIT_MS, 0,
                                200 + number) == LACUNA_OK);
    }
    take(ends, sent, completions, MESSAGES);
    for (number = 0; number < MESSAGES; number++) {
        struct lacuna_completion *done = &completions[number];
        CHECK(done->operation == LACUNA_OPERATION_SEND && done->result == LACUNA_OK);
        CHECK(done->user_data >= 200 && done->user_data < 200 + MESSAGES && !done->map);
        CHECK(!(seen >> (done->user_data - 200) & 1) && !done->is_silent);
        seen |= 1u << (done->user_data - 200);
    }
    seen = 0;
    take(ends, received, completions, MESSAGES);
    for (number = 0; number < MESSAGES; number++) {
        struct lacuna_completion *done = &completions[number];
        uint32_t message = (uint32_t)(done->user_data - 100);
        CHECK(done->operation == LACUNA_OPERATION_RECEIVE && done->result == LACUNA_OK);
        CHECK(message < MESSAGES && done->ended.immediate == message && !done->map);
        CHECK(!(seen >> message & 1));
        seen |= 1u << message;
        CHECK(done->ended.reason == LACUNA_REASON_WHOLE && done->ended.is_complete);
        CHECK(done->ended.length == BYTES - 100 && done->ended.bytes == BYTES - 100);
        CHECK(memcmp(buffers[message], data + message, BYTES - 100) == 0);
        CHECK(buffers[message][BYTES - 100] == 0xaa);
    }
    is_empty(sent);
    is_empty(received);
}

/* Of silent writes only failures are told, and their bytes are the program's at once. */
static void silent_writes(struct ends *ends, struct lacuna_completion_queue *told)
{
    static unsigned char memory[4096], bytes[8];
    struct lacuna_region *region = NULL;
    struct lacuna_completion done;
    uint32_t key = 0, number;
    size_t at;
    CHECK(lacuna_region_new(ends->far_context, memory, sizeof(memory), NULL, &region) == LACUNA_OK);
    CHECK(lacuna_region_key(region, &key) == LACUNA_OK);
    for (number = 0; number < 10; number++) {
        uint32_t flags = number < 9 ? LACUNA_QUEUED_SILENT : 0;
        memset(bytes, (int)(number + 1), sizeof(bytes));
        CHECK(lacuna_queue_remote_write(ends->near_end, key, 8 * number, bytes, 8, NULL, WAIT_MS,
                                        flags, number) == LACUNA_OK);
    }
    take(ends, told, &done, 1);
    CHECK(done.operation == LACUNA_OPERATION_REMOTE_WRITE && done.result == LACUNA_OK);
    CHECK(done.user_data == 9 && !done.is_silent);
    CHECK(lacuna_queue_remote_write(ends->near_end, key, sizeof(memory) - 7, bytes, 8, NULL,
                                    WAIT_MS, LACUNA_QUEUED_SILENT, 1234) == LACUNA_OK);
    take(ends, told, &done, 1);
    CHECK(done.operation == LACUNA_OPERATION_REMOTE_WRITE && done.result == LACUNA_PEER);
    CHECK(done.user_data == 1234 && done.is_silent);
    CHECK(strstr(lacuna_last_error(), "refused the write"));
    while (lacuna_flush(ends->near_end, 0) == LACUNA_DEADLINE)
        progress(ends);
    lacuna_region_free(region);
    for (at = 0; at < 80; at++)
        CHECK(memory[at] == at / 8 + 1);
    is_empty(told);
}

/* Reads complete as what was posted here; what the peer has written is told of, too. */
static void reads_and_written(struct ends *ends, struct lacuna_completion_queue *near_queue,
                              struct lacuna_completion_queue *far_queue)
{
    static unsigned char there[BYTES], here[BYTES];
    struct lacuna_region *from = NULL, *into = NULL;
    struct lacuna_completion done;
    struct lacuna_written written;
    struct lacuna_region_options options;
    uint32_t key = 0, number;
    memcpy(there, data, BYTES);
    memset(&options, 0, sizeof(options));
    options.rights = LACUNA_RIGHT_REMOTE_READ | LACUNA_RIGHT_REMOTE_WRITE;
    CHECK(lacuna_region_new(ends->far_context, there, BYTES, &options, &from) == LACUNA_OK);
    CHECK(lacuna_region_new(ends->near_context, here, BYTES, NULL, &into) == LACUNA_OK);
    CHECK(lacuna_region_key(from, &key) == LACUNA_OK);
    CHECK(lacuna_queue_remote_read(ends->near_end, key, 10, BYTES - 20, into, 5, WAIT_MS, 31) ==
          LACUNA_OK);
    take(ends, near_queue, &done, 1);
    CHECK(done.operation == LACUNA_OPERATION_REMOTE_READ && done.result == LACUNA_OK);
    CHECK(done.user_data == 31 && done.ended.bytes == BYTES - 20 && !done.map && !done.is_silent);
    CHECK(memcmp(here + 5, data + 10, BYTES - 20) == 0 && !here[4] && !here[BYTES - 15]);
    /* Beyond the region there, and here. */
    CHECK(lacuna_queue_remote_read(ends->near_end, key, BYTES - 5, 6, into, 0, WAIT_MS, 32) ==
          LACUNA_OK);
    take(ends, near_queue, &done, 1);
    CHECK(done.operation == LACUNA_OPERATION_REMOTE_READ && done.result == LACUNA_PEER);
    CHECK(done.user_data == 32 && done.ended.bytes == 0 && strlen(lacuna_last_error()) > 0);
    CHECK(lacuna_queue_remote_read(ends->near_end, key, 0, 6, into, BYTES - 5, WAIT_MS, 33) ==
          LACUNA_USAGE);
    /* What the peer writes is told of, once that was asked for. */
    CHECK(lacuna_queue_written(ends->far_end, 4000) == LACUNA_OK);
    CHECK(lacuna_queue_written(ends->far_end, 4001) == LACUNA_USAGE);
    for (number = 0; number < 5; number++) {
        CHECK(lacuna_queue_remote_write(ends->near_end, key, 100 * number, data + number,
                                        90 + number, &number, WAIT_MS, 0, number) == LACUNA_OK);
        take(ends, far_queue, &done, 1);
        CHECK(done.operation == LACUNA_OPERATION_WRITTEN && done.result == LACUNA_OK);
        CHECK(done.user_data == 4000 && done.key == key && done.address == 100 * number);
        CHECK(done.ended.has_immediate && done.ended.immediate == number && !done.map);
        CHECK(done.ended.bytes == 90 + number && done.ended.length == 90 + number);
        CHECK(done.ended.is_complete && done.ended.reason == LACUNA_REASON_WHOLE);
        CHECK(memcmp(there + 100 * number, data + number, 90 + number) == 0);
        take(ends, near_queue, &done, 1);
        CHECK(done.operation == LACUNA_OPERATION_REMOTE_WRITE && done.result == LACUNA_OK);
    }
    CHECK(lacuna_wait_written(ends->far_end, 0, &written, NULL) == LACUNA_DEADLINE);
    lacuna_region_free(from);
    /* Into a region that is freed. */
    CHECK(lacuna_queue_remote_read(ends->near_end, key, 0, 9, into, 0, WAIT_MS, 34) == LACUNA_OK);
    lacuna_region_free(into);
    memset(here, 0x55, BYTES);
    take(ends, near_queue, &done, 1);
    CHECK(done.operation == LACUNA_OPERATION_REMOTE_READ && done.result != LACUNA_OK);
    CHECK(done.user_data == 34 && here[0] == 0x55);
    is_empty(near_queue);
    is_empty(far_queue);
}

static void an_entry_for_each(struct ends *ends)
{
    struct lacuna_completion_queue *queue = queue_of(ends->far_context, 2);
    struct lacuna_connection *last = NULL;
    struct lacuna_completion done[2];
    CHECK(lacuna_queue_receive(ends->far_end, buffers[0], BYTES, NULL, 0) == LACUNA_USAGE);
    CHECK(strstr(lacuna_last_error(), "lacuna_complete_to"));
    CHECK(lacuna_complete_to(ends->far_end, queue) == LACUNA_OK);
    CHECK(lacuna_complete_to(ends->far_end, queue) == LACUNA_USAGE);
    CHECK(lacuna_queue_receive(ends->far_end, buffers[0], BYTES, NULL, 0) == LACUNA_OK);
    CHECK(lacuna_queue_receive(ends->far_end, buffers[1], BYTES, NULL, 1) == LACUNA_OK);
    CHECK(lacuna_queue_receive(ends->far_end, buffers[2], BYTES, NULL, 2) == LACUNA_RETRY);
    CHECK(lacuna_queue_send(ends->far_end, data, BYTES, NULL, WAIT_MS, 0, 2) == LACUNA_RETRY);
    CHECK(lacuna_connection_class(ends->far_end, LACUNA_CLASS_CRITICAL, &last) == LACUNA_USAGE);
    CHECK(!last && strstr(lacuna_last_error(), "classes"));
    lacuna_connection_free(ends->far_end);
    ends->far_end = NULL;
    take(ends, queue, done, 2);
    CHECK(done[0].user_data + done[1].user_data == 1);
    lacuna_map_free(done[0].map);
    lacuna_map_free(done[1].map);
    lacuna_completion_queue_free(queue);
}

static int is_readable(int descriptor, int timeout_ms)
{
    struct pollfd wanted = {descriptor, POLLIN, 0};
    CHECK(poll(&wanted, 1, timeout_ms) >= 0);
    return wanted.revents & POLLIN;
}

/* The descriptor tells of the next completion, or of the next solicited one. */
static void descriptor(struct ends *ends, struct lacuna_completion_queue *sent,
                       struct lacuna_completion_queue *received)
{
    struct lacuna_completion done;
    uint32_t immediate = 5;
    int fd = -1, same = -1, has_any = 77, waiting;
    CHECK(lacuna_completion_queue_descriptor(received, &fd) == LACUNA_OK && fd >= 0);
    CHECK(lacuna_completion_queue_descriptor(received, &same) == LACUNA_OK && fd == same);
    CHECK(lacuna_completion_queue_arm(received, LACUNA_ARM_SOLICITED, &has_any) == LACUNA_OK);
    CHECK(has_any == 0 && !is_readable(fd, 0));
    for (waiting = 0; waiting < 2; waiting++)
        CHECK(lacuna_queue_receive(ends->far_end, buffers[waiting], BYTES, NULL, 7) == LACUNA_OK);
    CHECK(lacuna_queue_send(ends->near_end, data, 10, NULL, WAIT_MS, 0, 1) == LACUNA_OK);
    take(ends, sent, &done, 1);
    CHECK(!is_readable(fd, 0));
    CHECK(lacuna_queue_send(ends->near_end, data, 10, &immediate, WAIT_MS, 0, 2) == LACUNA_OK);
    while (!is_readable(fd, 1))
        progress(ends);
    take(ends, received, &done, 1);
    CHECK(is_readable(fd, 0) && !done.ended.has_immediate);
    CHECK(lacuna_completion_queue_arm(received, LACUNA_ARM_ANY, &has_any) == LACUNA_OK);
    CHECK(has_any == 1 && !is_readable(fd, 0));
    take(ends, received, &done, 1);
    CHECK(done.ended.has_immediate && done.ended.immediate == 5);
    take(ends, sent, &done, 1);
    CHECK(lacuna_completion_queue_arm(received, LACUNA_ARM_ANY, NULL) == LACUNA_OK);
    is_empty(received);
}

/* A receive with a deadline has what came. */
static void gaps(struct ends *ends, struct lacuna_connection *to,
                 struct lacuna_completion_queue *received)
{
    struct lacuna_receive_options options;
    struct lacuna_completion done;
    struct lacuna_range gap;
    size_t count = 0;
    memset(&options, 0, sizeof(options));
    memset(buffers[0], 0xaa, BYTES);
    options.deadline_us = 20000;
    options.missing = LACUNA_MISSING_ZERO;
    CHECK(lacuna_queue_receive(to, buffers[0], BYTES, &options, UINT64_MAX) == LACUNA_OK);
    take(ends, received, &done, 1);
    CHECK(done.user_data == UINT64_MAX && done.operation == LACUNA_OPERATION_RECEIVE);
    CHECK(done.result == LACUNA_DEADLINE && strlen(lacuna_last_error()) > 0 && done.map);
    CHECK(done.ended.reason == LACUNA_REASON_DEADLINE && !done.ended.is_complete);
    CHECK(lacuna_map_gaps(done.map, &gap, 1, &count) == LACUNA_OK && count == 1);
    CHECK(gap.offset == 0 && gap.length == BYTES && buffers[0][BYTES - 1] == 0);
    lacuna_map_free(done.map);
}

/* Polls, asleep mostly, until there is nothing left and the context is gone. */
struct polling {
    struct lacuna_completion_queue *queue;
    unsigned told;
};

static void *poll_all(void *given)
{
    struct polling *polling = (struct polling *)given;
    for (;;) {
        struct lacuna_completion done;
        size_t count = 0;
        int result = lacuna_completion_queue_poll(polling->queue, &done, 1, WAIT_MS, &count);
        if (result != LACUNA_OK) {
            CHECK(result == LACUNA_USAGE && strstr(lacuna_last_error(), "its context is gone"));
            return NULL;
        }
        CHECK(count == 1 && done.result == LACUNA_PEER);
        CHECK(!(__atomic_fetch_or(&polling->told, 1u << done.user_data, __ATOMIC_SEQ_CST) >>
                    done.user_data & 1));
        lacuna_map_free(done.map);
    }
}

/* What was posted to a connection that is freed has failed, and its memory is the
 * program's: nobody zeroes its gaps later on. */
static void a_connection_goes(struct ends *ends, int polls)
{
    struct lacuna_completion_queue *queue = queue_of(ends->near_context, ENTRIES);
    struct lacuna_receive_options options;
    struct polling polling = {queue, 0};
    unsigned char *memory = (unsigned char *)malloc(10 * (size_t)BYTES);
    pthread_t threads[2];
    unsigned number;
    int i;
    CHECK(memory);
    memset(memory, 0x55, 10 * (size_t)BYTES);
    memset(&options, 0, sizeof(options));
    options.missing = LACUNA_MISSING_ZERO;
    CHECK(lacuna_complete_to(ends->near_end, queue) == LACUNA_OK);
    for (number = 0; number < 5; number++) {
        CHECK(lacuna_queue_receive(ends->near_end, memory + number * BYTES, BYTES, &options,
                                   number) == LACUNA_OK);
        CHECK(lacuna_queue_send(ends->near_end, memory + (5 + number) * BYTES, BYTES, NULL, WAIT_MS,
                                0, 5 + number) == LACUNA_OK);
    }
    for (i = 0; i < polls; i++)
        CHECK(pthread_create(&threads[i], NULL, poll_all, &polling) == 0);
    lacuna_connection_free(ends->near_end);
    ends->near_end = NULL;
    CHECK(memory[0] == 0 && memory[5 * BYTES - 1] == 0 && memory[5 * BYTES] == 0x55);
    free(memory);
    lacuna_context_free(ends->near_context);
    ends->near_context = NULL;
    for (i = 0; i < polls; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    if (polls == 0)
        poll_all(&polling);
    CHECK(polling.told == 0x3ff);
    lacuna_completion_queue_free(queue);
}

/* A queue may be freed first; its memory comes back with the connection. */
static void a_queue_goes(struct ends *ends)
{
    struct lacuna_completion_queue *queue = queue_of(ends->near_context, ENTRIES);
    unsigned char *memory = (unsigned char *)malloc(BYTES);
    CHECK(memory && lacuna_complete_to(ends->near_end, queue) == LACUNA_OK);
    CHECK(lacuna_queue_receive(ends->near_end, memory, BYTES, NULL, 1) == LACUNA_OK);
    CHECK(lacuna_queue_send(ends->near_end, data, 10, NULL, WAIT_MS, 0, 2) == LACUNA_OK);
    lacuna_completion_queue_free(queue);
    CHECK(lacuna_queue_send(ends->near_end, data, 10, NULL, WAIT_MS, 0, 3) == LACUNA_OK);
    lacuna_connection_free(ends->near_end);
    ends->near_end = NULL;
    free(memory);
}

static void *read_one(void *connection)
{
    struct lacuna_received got;
    CHECK(lacuna_read((struct lacuna_connection *)connection, buffers[0], BYTES, WAIT_MS, &got) ==
          LACUNA_OK);
    CHECK(got.length == BYTES && got.is_complete);
    return NULL;
}

/* Messages of a class have receives, and a queue, of their own. */
static void classes(struct ends *ends, struct lacuna_completion_queue *sent,
                    struct lacuna_completion_queue *received)
{
    static const uint32_t kinds[] = {LACUNA_CLASS_CRITICAL, LACUNA_CLASS_DROPPABLE};
    int kind;
    for (kind = 0; kind < 2; kind++) {
        struct lacuna_connection *from = NULL, *to = NULL, *same = NULL, *none = NULL;
        struct lacuna_receive *receive = NULL;
        struct lacuna_send *send = NULL;
        struct lacuna_received got;
        uint32_t reason = 0;
        uint64_t tag = 7;
        pthread_t reading;
        int result;
        CHECK(lacuna_connection_class(ends->near_end, kinds[kind], &from) == LACUNA_OK);
        CHECK(lacuna_connection_class(ends->far_end, kinds[kind], &to) == LACUNA_OK);
        CHECK(lacuna_connection_class(ends->near_end, kinds[kind], &same) == LACUNA_OK);
        CHECK(from == same && from != ends->near_end);
        CHECK(lacuna_connection_class(from, kinds[kind], &none) == LACUNA_USAGE && !none);
        CHECK(lacuna_tag(from, &tag) == LACUNA_OK && tag == 0);
        lacuna_connection_free(from);
        CHECK(strstr(lacuna_last_error(), "belongs to its connection"));
        /* With handles. */
        CHECK(lacuna_receive_post(to, buffers[0], BYTES, &receive) == LACUNA_OK);
        CHECK(lacuna_send_start(from, data, 1000, NULL, WAIT_MS, &send) == LACUNA_OK);
        while ((result = lacuna_receive_wait_over(receive, 0, &reason)) == LACUNA_DEADLINE)
            progress(ends);
        CHECK(result == LACUNA_OK && reason == LACUNA_REASON_WHOLE);
        CHECK(lacuna_receive_complete(receive, &got) == LACUNA_OK && got.length == 1000);
        while ((result = lacuna_send_poll(send)) == LACUNA_RETRY)
            progress(ends);
        CHECK(result == LACUNA_OK && lacuna_send_free(send) == LACUNA_OK);
        CHECK(lacuna_wait_clear_to_send(from, 0) == LACUNA_DEADLINE);
        CHECK(pthread_create(&reading, NULL, read_one, to) == 0);
        CHECK(lacuna_write(from, data, BYTES, NULL, WAIT_MS) == LACUNA_OK);
        CHECK(pthread_join(reading, NULL) == 0);
        CHECK(memcmp(buffers[0], data, BYTES) == 0);
        CHECK(lacuna_complete_to(from, sent) == LACUNA_OK);
        CHECK(lacuna_complete_to(to, received) == LACUNA_OK);
        messages(ends, from, to, sent, received);
        gaps(ends, to, received);
    }
}

/* What is queued outlives the context. */
static void a_context_goes(const char *how)
{
    const char *settings[] = {"progress", how, NULL};
    struct ends ends = make_ends(settings);
    struct lacuna_completion_queue *queue = queue_of(ends.near_context, 1);
    struct lacuna_completion done;
    size_t count = 0;
    int fd = -1, has_any = 0;
    CHECK(lacuna_complete_to(ends.near_end, queue) == LACUNA_OK);
    CHECK(lacuna_queue_receive(ends.near_end, buffers[0], BYTES, NULL, 9) == LACUNA_OK);
    free_ends(&ends);
    CHECK(lacuna_completion_queue_arm(queue, LACUNA_ARM_ANY, &has_any) == LACUNA_OK);
    CHECK(has_any == 1);
    CHECK(lacuna_completion_queue_poll(queue, &done, 1, WAIT_MS, &count) == LACUNA_OK);
    CHECK(count == 1 && done.user_data == 9 && done.result == LACUNA_PEER && done.map);
    lacuna_map_free(done.map);
    CHECK(lacuna_completion_queue_poll(queue, &done, 1, WAIT_MS, &count) == LACUNA_USAGE);
    CHECK(strstr(lacuna_last_error(), "its context is gone"));
    CHECK(lacuna_completion_queue_descriptor(queue, &fd) == LACUNA_OK && is_readable(fd, 0));
    lacuna_completion_queue_free(queue);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "threads";
    const char *settings[] = {"one_sided", "on",  "classes",   "critical+droppable",
                              "progress",  how,   "mtu_bytes", "1024",
                              NULL};
    const char *plain[] = {"progress", how, NULL};
    struct ends ends = make_ends(settings);
    struct lacuna_completion_queue *sent = queue_of(ends.near_context, ENTRIES);
    struct lacuna_completion_queue *received = queue_of(ends.far_context, ENTRIES);
    size_t at;
    int polls;
    for (at = 0; at < BYTES; at++)
        data[at] = byte_of(at);
    CHECK(lacuna_complete_to(ends.near_end, sent) == LACUNA_OK);
    CHECK(lacuna_complete_to(ends.far_end, received) == LACUNA_OK);
    messages(&ends, ends.near_end, ends.far_end, sent, received);
    silent_writes(&ends, sent);
    reads_and_written(&ends, sent, received);
    descriptor(&ends, sent, received);
    gaps(&ends, ends.far_end, received);
    classes(&ends, sent, received);
    free_ends(&ends);
    lacuna_completion_queue_free(sent);
    lacuna_completion_queue_free(received);
    ends = make_ends(plain);
    an_entry_for_each(&ends);
    free_ends(&ends);
    /* Without threads a poll that sleeps makes progress, and holds the context meanwhile: two
     * such would hold it for each other. */
    for (polls = 0; polls <= (strcmp(how, "manual") ? 2 : 1); polls++) {
        ends = make_ends(plain);
        a_connection_goes(&ends, polls);
        free_ends(&ends);
    }
    ends = make_ends(plain);
    a_queue_goes(&ends);
    free_ends(&ends);
    a_context_goes(how);
    puts("every completion came");
    return 0;
}
