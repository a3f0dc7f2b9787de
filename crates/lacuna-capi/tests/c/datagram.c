/* Datagram queue pairs: all verbs, reliable and not, over their own lists and over a
 * completion queue; errors, addresses, groups, memory that comes back.
 *
 *     datagram threads|manual
 */

#define _POSIX_C_SOURCE 200809L

#include <netinet/in.h>
#include <sys/socket.h>

#include "ends.h"

enum { BYTES = 100000, PART = 1001 };

static unsigned char data[BYTES], there[BYTES], here[BYTES], inbox[BYTES];

/* Two queue pairs of two contexts. Both complete into their own lists, or both into a
 * queue of their context. */
struct pair {
    struct lacuna_context *contexts[2];
    struct lacuna_completion_queue *queues[2];
    struct lacuna_datagram *ends[2];
    /* The other one's handle. */
    uint64_t peers[2];
};

enum { NEAR, FAR };

static struct lacuna_datagram_settings defaults(void)
{
    struct lacuna_datagram_settings settings;
    CHECK(lacuna_datagram_settings_default(&settings) == LACUNA_OK);
    settings.bind = "127.0.0.1";
    return settings;
}

static uint64_t peer_of(struct lacuna_datagram *from, struct lacuna_datagram *to)
{
    struct lacuna_address address;
    uint64_t peer = 0;
    CHECK(lacuna_datagram_local(to, &address) == LACUNA_OK);
    CHECK(lacuna_datagram_peer(from, &address, &peer) == LACUNA_OK);
    return peer;
}

static struct pair make_pair(const char *progress, int is_reliable, int is_queued)
{
    struct lacuna_settings *chosen = NULL;
    struct pair pair;
    int end;
    memset(&pair, 0, sizeof(pair));
    CHECK(lacuna_settings_new(&chosen) == LACUNA_OK);
    CHECK(lacuna_settings_set(chosen, "bind", "127.0.0.1") == LACUNA_OK);
    CHECK(lacuna_settings_set(chosen, "progress", progress) == LACUNA_OK);
    for (end = 0; end < 2; end++) {
        struct lacuna_datagram_settings settings = defaults();
        CHECK(lacuna_context_new(chosen, &pair.contexts[end]) == LACUNA_OK);
        settings.is_reliable = (uint8_t)is_reliable;
        settings.rate_bits_per_s = is_reliable ? 0 : 2000000000;
        if (is_queued)
            CHECK(lacuna_completion_queue_new(pair.contexts[end], 64, &pair.queues[end]) ==
                  LACUNA_OK);
        settings.completions = pair.queues[end];
        CHECK(lacuna_datagram_new(pair.contexts[end], &settings, &pair.ends[end]) == LACUNA_OK);
    }
    pair.peers[NEAR] = peer_of(pair.ends[NEAR], pair.ends[FAR]);
    pair.peers[FAR] = peer_of(pair.ends[FAR], pair.ends[NEAR]);
    lacuna_settings_free(chosen);
    return pair;
}

static void free_pair(struct pair *pair)
{
    int end;
    for (end = 0; end < 2; end++) {
        lacuna_datagram_free(pair->ends[end]);
        lacuna_completion_queue_free(pair->queues[end]);
        lacuna_context_free(pair->contexts[end]);
    }
}

static size_t poll_end(struct pair *pair, int end, struct lacuna_completion *done, size_t capacity)
{
    size_t count = 77;
    if (pair->queues[end])
        CHECK(lacuna_completion_queue_poll(pair->queues[end], done, capacity, 1, &count) ==
              LACUNA_OK);
    else
        CHECK(lacuna_datagram_poll(pair->ends[end], done, capacity, 1, &count) == LACUNA_OK);
    CHECK(count <= capacity);
    return count;
}

/* The next completion of an end; the other goes on meanwhile. */
static struct lacuna_completion next(struct pair *pair, int end)
{
    struct lacuna_completion done;
    uint32_t number = 0;
    unsigned tries = 0;
    memset(&done, 0xee, sizeof(done));
    while (poll_end(pair, end, &done, 1) == 0) {
        CHECK(lacuna_context_progress(pair->contexts[!end], NULL) == LACUNA_OK);
        CHECK(++tries < WAIT_MS);
    }
    CHECK(lacuna_datagram_number(pair->ends[end], &number) == LACUNA_OK && number != 0);
    CHECK(done.queue_pair == number);
    return done;
}

static void is_quiet(struct pair *pair)
{
    struct lacuna_completion done;
    CHECK(poll_end(pair, NEAR, &done, 1) == 0 && poll_end(pair, FAR, &done, 1) == 0);
}

/* Whether a completion names this end as its source. */
static int is_from(const struct lacuna_completion *done, struct lacuna_datagram *end)
{
    struct lacuna_address address;
    CHECK(lacuna_datagram_local(end, &address) == LACUNA_OK);
    return memcmp(&address, &done->source, sizeof(address)) == 0;
}

static struct lacuna_region *register_all(struct lacuna_context *context, void *memory, size_t bytes,
                                          uint32_t *key)
{
    struct lacuna_region_options options;
    struct lacuna_region *region = NULL;
    memset(&options, 0, sizeof(options));
    options.rights = LACUNA_RIGHT_REMOTE_READ | LACUNA_RIGHT_REMOTE_WRITE;
    options.has_validity = 1;
    CHECK(lacuna_region_new(context, memory, bytes, &options, &region) == LACUNA_OK);
    CHECK(lacuna_region_key(region, key) == LACUNA_OK);
    return region;
}

/* The bytes in three pieces, one of them empty. */
static void in_pieces(struct lacuna_slice slices[3], unsigned char *bytes, size_t length)
{
    slices[0].memory = bytes, slices[0].length = PART;
    slices[1].memory = NULL, slices[1].length = 0;
    slices[2].memory = bytes + PART, slices[2].length = length - PART;
}

static void verbs(const char *progress, int is_reliable, int is_queued)
{
    struct pair pair = make_pair(progress, is_reliable, is_queued);
    struct lacuna_datagram *near_end = pair.ends[NEAR], *far_end = pair.ends[FAR];
    uint64_t to = pair.peers[NEAR];
    struct lacuna_slice slices[3];
    struct lacuna_completion done;
    struct lacuna_region *region;
    uint8_t bits[(BYTES / 64 + 8) / 8];
    uint32_t key = 0, number;
    size_t length = 0;
    char text[4000];
    memset(there, 0, BYTES), memset(here, 0, BYTES), memset(inbox, 0, BYTES);
    region = register_all(pair.contexts[FAR], there, BYTES, &key);

    /* A message, scattered and gathered. */
    in_pieces(slices, inbox, BYTES);
    CHECK(lacuna_datagram_receive(far_end, slices, 3, 50) == LACUNA_OK);
    in_pieces(slices, data, BYTES - 7);
    CHECK(lacuna_datagram_send(near_end, to, slices, 3, 0, LACUNA_QUEUED_SOLICITED, 10) == LACUNA_OK);
    done = next(&pair, FAR);
    CHECK(done.user_data == 50 && done.operation == LACUNA_OPERATION_RECEIVE && !done.map);
    CHECK(done.result == LACUNA_OK && done.ended.reason == LACUNA_REASON_WHOLE);
    CHECK(done.ended.length == BYTES - 7 && done.ended.bytes == BYTES - 7);
    CHECK(done.ended.is_complete && done.ended.has_length && done.missed == 0);
    CHECK(is_from(&done, near_end) && done.peer == pair.peers[FAR] && done.is_solicited);
    CHECK(memcmp(inbox, data, BYTES - 7) == 0 && inbox[BYTES - 7] == 0);
    number = done.number;
    done = next(&pair, NEAR);
    CHECK(done.user_data == 10 && done.operation == LACUNA_OPERATION_SEND);
    CHECK(done.result == LACUNA_OK && done.peer == to && !done.map && !done.is_solicited);

    /* One without bytes, and one that is silent. */
    CHECK(lacuna_datagram_receive(far_end, NULL, 0, 51) == LACUNA_OK);
    slices[0].memory = inbox, slices[0].length = 8;
    CHECK(lacuna_datagram_receive(far_end, slices, 1, 52) == LACUNA_OK);
    CHECK(lacuna_datagram_send(near_end, to, NULL, 0, WAIT_MS, 0, 11) == LACUNA_OK);
    memcpy(text, "silently", 8);
    slices[0].memory = text;
    CHECK(lacuna_datagram_send(near_end, to, slices, 1, WAIT_MS, LACUNA_QUEUED_SILENT, 12) ==
          LACUNA_OK);
    memset(text, 0, 8);
    done = next(&pair, FAR);
    CHECK(done.user_data == 51 && done.ended.length == 0 && done.ended.is_complete && !done.map);
    CHECK(done.number == number + 1 && !done.is_solicited);
    done = next(&pair, FAR);
    CHECK(done.user_data == 52 && done.number == number + 2 && memcmp(inbox, "silently", 8) == 0);
    CHECK(next(&pair, NEAR).user_data == 11);

    /* A Write-Record, and the same under a name. */
    in_pieces(slices, data, BYTES - 100);
    CHECK(lacuna_datagram_write_record(near_end, to, key, 100, slices, 3, WAIT_MS, 0, 13) ==
          LACUNA_OK);
    done = next(&pair, FAR);
    CHECK(done.operation == LACUNA_OPERATION_WRITTEN && done.user_data == 0);
    CHECK(done.result == LACUNA_OK && done.ended.reason == LACUNA_REASON_WHOLE && !done.map);
    CHECK(done.key == key && done.address == 100 && done.ended.bytes == BYTES - 100);
    CHECK(is_from(&done, near_end) && done.missed == 0);
    CHECK(memcmp(there + 100, data, BYTES - 100) == 0 && there[99] == 0);
    done = next(&pair, NEAR);
    CHECK(done.user_data == 13 && done.operation == LACUNA_OPERATION_REMOTE_WRITE);
    CHECK(lacuna_region_take_valid(region, 0, BYTES, bits, sizeof(bits)) == LACUNA_OK);
    CHECK(!(bits[0] & 3) && (bits[0] >> 2 & 1) && bits[BYTES / 64 / 8 - 1] == 0xff);
    CHECK(lacuna_datagram_name_region(far_end, 7, &key) == LACUNA_OK);
    slices[0].memory = data + 5, slices[0].length = 90;
    CHECK(lacuna_datagram_write_named(near_end, to, 7, 3, slices, 1, 0, LACUNA_QUEUED_SOLICITED, 14) ==
          LACUNA_OK);
    done = next(&pair, FAR);
    CHECK(done.operation == LACUNA_OPERATION_WRITTEN && done.address == 3 && done.is_solicited);
    CHECK(memcmp(there + 3, data + 5, 90) == 0 && done.key == key);
    CHECK(next(&pair, NEAR).user_data == 14);
    CHECK(lacuna_datagram_name_region(far_end, 7, NULL) == LACUNA_OK);

    /* A READ: it completes, whatever the flags are. */
    memcpy(there, data, BYTES);
    in_pieces(slices, here, BYTES - 3);
    CHECK(lacuna_datagram_read(near_end, to, key, 3, slices, 3, WAIT_MS, LACUNA_QUEUED_SILENT, 15) ==
          LACUNA_OK);
    done = next(&pair, NEAR);
    CHECK(done.user_data == 15 && done.operation == LACUNA_OPERATION_REMOTE_READ);
    CHECK(done.result == LACUNA_OK && done.ended.bytes == BYTES - 3 && !done.is_silent);
    CHECK(memcmp(here, data + 3, BYTES - 3) == 0 && here[BYTES - 3] == 0);

    CHECK(lacuna_datagram_say_sent(near_end, to) == LACUNA_OK);
    CHECK(lacuna_datagram_stats_json(near_end, text, sizeof(text), &length) == LACUNA_OK);
    CHECK(length < sizeof(text) && strlen(text) == length && strstr(text, "\"messages_missed\": 0"));
    is_quiet(&pair);
    /* What is posted goes with the queue pair, and a completion queue is told. */
    slices[0].memory = inbox, slices[0].length = 8;
    CHECK(lacuna_datagram_receive(far_end, slices, 1, 53) == LACUNA_OK);
    CHECK(lacuna_datagram_close(far_end) == LACUNA_OK);
    done = next(&pair, FAR);
    CHECK(done.user_data == 53 && done.result == LACUNA_PEER && done.peer == UINT64_MAX);
    CHECK(done.ended.reason == LACUNA_REASON_FAILED && strstr(lacuna_last_error(), "flushed"));
    CHECK(lacuna_datagram_receive(far_end, slices, 1, 54) == LACUNA_USAGE);
    CHECK(strstr(lacuna_last_error(), "closed"));
    CHECK(lacuna_datagram_close(far_end) == LACUNA_OK);
    CHECK(lacuna_datagram_receive(near_end, slices, 1, 55) == LACUNA_OK);
    lacuna_datagram_free(near_end);
    pair.ends[NEAR] = NULL;
    if (is_queued) {
        CHECK(poll_end(&pair, NEAR, &done, 1) == 1);
        CHECK(done.user_data == 55 && done.result == LACUNA_PEER);
    }
    free_pair(&pair);
    lacuna_region_free(region);
}

static struct lacuna_datagram_error next_error(struct pair *pair, int end)
{
    struct lacuna_datagram_error error;
    size_t count = 0;
    unsigned tries = 0;
    do {
        CHECK(lacuna_context_progress(pair->contexts[!end], NULL) == LACUNA_OK);
        CHECK(lacuna_datagram_poll_error(pair->ends[end], &error, 1, 1, &count) == LACUNA_OK);
        CHECK(++tries < WAIT_MS);
    } while (count == 0);
    return error;
}

/* What is refused is told to both ends, and ends nothing. */
static void errors(const char *progress)
{
    struct pair pair = make_pair(progress, 0, 0);
    struct lacuna_datagram_error told, seen;
    struct lacuna_address near_address, far_address;
    struct lacuna_slice slice;
    struct lacuna_region *region;
    struct lacuna_completion done;
    uint32_t key = 0;
    size_t count = 77;
    char text[4000];
    region = register_all(pair.contexts[FAR], there, 50, &key);
    CHECK(lacuna_datagram_local(pair.ends[NEAR], &near_address) == LACUNA_OK);
    CHECK(lacuna_datagram_local(pair.ends[FAR], &far_address) == LACUNA_OK);
    slice.memory = data, slice.length = 100;
    /* Nobody has posted a receive. */
    CHECK(lacuna_datagram_send(pair.ends[NEAR], pair.peers[NEAR], &slice, 1, 0, 0, 1) == LACUNA_OK);
    CHECK(next(&pair, NEAR).result == LACUNA_OK);
    seen = next_error(&pair, FAR);
    CHECK(!seen.is_told && seen.reason == LACUNA_DATAGRAM_NO_BUFFER);
    CHECK(memcmp(&seen.peer, &near_address, sizeof(near_address)) == 0);
    told = next_error(&pair, NEAR);
    CHECK(told.is_told && told.reason == LACUNA_DATAGRAM_NO_BUFFER && told.number == seen.number);
    CHECK(told.space == LACUNA_DATAGRAM_SENDS);
    CHECK(memcmp(&told.peer, &far_address, sizeof(far_address)) == 0);
    /* Memory that is too short for the message, and a right that the key does not have. */
    CHECK(lacuna_datagram_write_record(pair.ends[NEAR], pair.peers[NEAR], key, 0, &slice, 1, 0,
                                       LACUNA_QUEUED_SILENT, 2) == LACUNA_OK);
    told = next_error(&pair, NEAR);
    CHECK(told.reason == LACUNA_DATAGRAM_BOUNDS && told.space == LACUNA_DATAGRAM_RECORDS);
    slice.length = 50;
    CHECK(lacuna_datagram_write_record(pair.ends[NEAR], pair.peers[NEAR], key, 0, &slice, 1, 0,
                                       LACUNA_QUEUED_SILENT, 3) == LACUNA_OK);
    done = next(&pair, FAR);
    CHECK(done.operation == LACUNA_OPERATION_WRITTEN && done.ended.bytes == 50);
    CHECK(lacuna_datagram_stats_json(pair.ends[FAR], text, sizeof(text), NULL) == LACUNA_OK);
    CHECK(strstr(text, "\"no_buffer\": 1,") && strstr(text, "\"bounds\": 1,"));
    /* A READ of a key that nobody has ends by its deadline. */
    slice.memory = here;
    CHECK(lacuna_datagram_read(pair.ends[NEAR], pair.peers[NEAR], ~key, 0, &slice, 1, 30, 0, 4) ==
          LACUNA_OK);
    done = next(&pair, NEAR);
    CHECK(done.user_data == 4 && done.result == LACUNA_DEADLINE);
    CHECK(strstr(lacuna_last_error(), "deadline"));
    CHECK(lacuna_datagram_poll_error(pair.ends[NEAR], NULL, 0, 0, &count) == LACUNA_OK && !count);
    free_pair(&pair);
    lacuna_region_free(region);
}

/* A peer that is not there: of a reliable queue pair it is in error until it is reset. */
static void nobody(const char *progress)
{
    struct pair pair = make_pair(progress, 1, 0);
    struct lacuna_datagram_settings settings = defaults();
    struct lacuna_address address;
    struct lacuna_slice slice;
    struct lacuna_completion done;
    uint64_t gone = 0;
    int round;
    lacuna_datagram_free(pair.ends[NEAR]);
    settings.is_reliable = 1, settings.silence_ms = 50, settings.cc = "cubic";
    CHECK(lacuna_datagram_new(pair.contexts[NEAR], &settings, &pair.ends[NEAR]) == LACUNA_OK);
    CHECK(lacuna_address_parse("127.0.0.1:9", &address) == LACUNA_OK);
    CHECK(lacuna_datagram_peer(pair.ends[NEAR], &address, &gone) == LACUNA_OK);
    slice.memory = data, slice.length = 5000;
    for (round = 0; round < 2; round++) {
        CHECK(lacuna_datagram_send(pair.ends[NEAR], gone, &slice, 1, 0, 0, 1) == LACUNA_OK);
        done = next(&pair, NEAR);
        CHECK(done.user_data == 1 && done.result == LACUNA_PEER && done.peer == gone);
        CHECK(strstr(lacuna_last_error(), "says nothing"));
        CHECK(lacuna_datagram_send(pair.ends[NEAR], gone, &slice, 1, 0, 0, 1) == LACUNA_PEER);
        CHECK(strstr(lacuna_last_error(), "in error"));
        CHECK(lacuna_datagram_reset(pair.ends[NEAR], gone) == LACUNA_OK);
    }
    /* A silent one fails aloud. */
    CHECK(lacuna_datagram_send(pair.ends[NEAR], gone, &slice, 1, 0, LACUNA_QUEUED_SILENT, 2) ==
          LACUNA_OK);
    done = next(&pair, NEAR);
    CHECK(done.user_data == 2 && done.is_silent && done.result == LACUNA_PEER);
    /* Its groups are none. */
    CHECK(lacuna_address_parse("239.1.2.3:9", &address) == LACUNA_OK);
    CHECK(lacuna_datagram_group(pair.ends[NEAR], &address, &gone) == LACUNA_OK);
    CHECK(lacuna_datagram_send(pair.ends[NEAR], gone, &slice, 1, 0, 0, 3) == LACUNA_USAGE);
    free_pair(&pair);
}

/* One queue for the operations of a connection and of a datagram queue pair. */
static void mixed(const char *progress_is)
{
    const char *settings[] = {"progress", progress_is, NULL};
    struct ends ends = make_ends(settings);
    struct lacuna_datagram_settings chosen = defaults();
    struct lacuna_datagram *datagram = NULL;
    struct lacuna_completion done;
    struct lacuna_slice slice;
    size_t count = 0;
    uint64_t to;
    uint32_t number = 0;
    int of_connection = 0, of_datagram = 0;
    CHECK(lacuna_completion_queue_new(ends.near_context, 8, &chosen.completions) == LACUNA_OK);
    CHECK(lacuna_complete_to(ends.near_end, chosen.completions) == LACUNA_OK);
    CHECK(lacuna_datagram_new(ends.near_context, &chosen, &datagram) == LACUNA_OK);
    CHECK(lacuna_datagram_number(datagram, &number) == LACUNA_OK);
    to = peer_of(datagram, datagram);
    slice.memory = here, slice.length = 3000;
    CHECK(lacuna_datagram_receive(datagram, &slice, 1, 1) == LACUNA_OK);
    CHECK(lacuna_queue_receive(ends.near_end, inbox, 3000, NULL, 2) == LACUNA_OK);
    slice.memory = data;
    CHECK(lacuna_datagram_send(datagram, to, &slice, 1, 0, LACUNA_QUEUED_SILENT, 3) == LACUNA_OK);
    {
        struct lacuna_send *send = NULL;
        CHECK(lacuna_send_start(ends.far_end, data, 3000, NULL, WAIT_MS, &send) == LACUNA_OK);
        while (!of_connection || !of_datagram) {
            progress(&ends);
            CHECK(lacuna_completion_queue_poll(chosen.completions, &done, 1, 1, &count) == LACUNA_OK);
            if (count == 0)
                continue;
            CHECK(done.operation == LACUNA_OPERATION_RECEIVE && done.result == LACUNA_OK);
            CHECK(done.ended.bytes == 3000 && !done.map);
            CHECK(done.queue_pair == (done.user_data == 1 ? number : 0));
            of_datagram += done.user_data == 1, of_connection += done.user_data == 2;
        }
        while (lacuna_send_poll(send) == LACUNA_RETRY)
            progress(&ends);
        CHECK(lacuna_send_free(send) == LACUNA_OK);
    }
    CHECK(of_connection == 1 && of_datagram == 1);
    CHECK(memcmp(here, data, 3000) == 0 && memcmp(inbox, data, 3000) == 0);
    lacuna_datagram_free(datagram);
    free_ends(&ends);
    lacuna_completion_queue_free(chosen.completions);
}

/* A completion queue that is full refuses work, and drops Write-Records that it could not
 * tell of. */
static void full_queue(const char *progress)
{
    struct pair pair = make_pair(progress, 0, 0);
    struct lacuna_datagram_settings settings = defaults();
    struct lacuna_completion_queue *queue = NULL;
    struct lacuna_completion done;
    struct lacuna_slice slice;
    struct lacuna_region *region;
    uint32_t key = 0;
    uint64_t user_data;
    size_t count = 0;
    int has_any = 0;
    region = register_all(pair.contexts[FAR], there, 100, &key);
    lacuna_datagram_free(pair.ends[FAR]);
    CHECK(lacuna_completion_queue_new(pair.contexts[FAR], 2, &queue) == LACUNA_OK);
    pair.queues[FAR] = settings.completions = queue;
    CHECK(lacuna_datagram_new(pair.contexts[FAR], &settings, &pair.ends[FAR]) == LACUNA_OK);
    pair.peers[NEAR] = peer_of(pair.ends[NEAR], pair.ends[FAR]);
    CHECK(lacuna_datagram_poll(pair.ends[FAR], &done, 1, 0, &count) == LACUNA_USAGE);
    CHECK(strstr(lacuna_last_error(), "lacuna_completion_queue_poll"));
    slice.memory = inbox, slice.length = 100;
    for (user_data = 0; user_data < 2; user_data++)
        CHECK(lacuna_datagram_receive(pair.ends[FAR], &slice, 1, user_data) == LACUNA_OK);
    CHECK(lacuna_datagram_receive(pair.ends[FAR], &slice, 1, 2) == LACUNA_RETRY);
    slice.memory = data;
    CHECK(lacuna_datagram_write_record(pair.ends[NEAR], pair.peers[NEAR], key, 0, &slice, 1, 0, 0,
                                       3) == LACUNA_OK);
    CHECK(next(&pair, NEAR).user_data == 3);
    CHECK(next_error(&pair, NEAR).reason == LACUNA_DATAGRAM_BUSY);
    CHECK(lacuna_completion_queue_arm(queue, LACUNA_ARM_SOLICITED, &has_any) == LACUNA_OK);
    CHECK(!has_any);
    CHECK(lacuna_datagram_send(pair.ends[NEAR], pair.peers[NEAR], &slice, 1, 0,
                               LACUNA_QUEUED_SOLICITED, 4) == LACUNA_OK);
    CHECK(next(&pair, FAR).user_data == 0 && next(&pair, NEAR).user_data == 4);
    CHECK(lacuna_datagram_write_record(pair.ends[NEAR], pair.peers[NEAR], key, 0, &slice, 1, 0, 0,
                                       5) == LACUNA_OK);
    CHECK(next(&pair, FAR).operation == LACUNA_OPERATION_WRITTEN);
    /* A queue may go before its queue pairs. */
    lacuna_completion_queue_free(queue);
    pair.queues[FAR] = NULL;
    free_pair(&pair);
    lacuna_region_free(region);
}

/* A Write-Record that was given up half way, or of which a part was lost, has a map. */
static void partial(const char *progress)
{
    struct pair pair = make_pair(progress, 0, 0);
    struct lacuna_datagram_settings settings = defaults();
    struct lacuna_completion done;
    struct lacuna_slice slice;
    struct lacuna_region *region;
    struct lacuna_range ranges[64], gaps[64];
    size_t count = 0, gap_count = 0, at, byte;
    uint64_t came = 0, missing = 0;
    uint32_t key = 0;
    uint8_t bits;
    memset(there, 0, BYTES);
    region = register_all(pair.contexts[FAR], there, BYTES, &key);
    lacuna_datagram_free(pair.ends[NEAR]);
    /* The message takes eight seconds, and has one. */
    settings.rate_bits_per_s = 100000;
    CHECK(lacuna_datagram_new(pair.contexts[NEAR], &settings, &pair.ends[NEAR]) == LACUNA_OK);
    pair.peers[NEAR] = peer_of(pair.ends[NEAR], pair.ends[FAR]);
    slice.memory = data, slice.length = BYTES;
    do {
        /* Again if the host was so busy that nothing left in time. */
        CHECK(lacuna_datagram_write_record(pair.ends[NEAR], pair.peers[NEAR], key, 0, &slice, 1, 1000,
                                           0, 1) == LACUNA_OK);
        done = next(&pair, NEAR);
        CHECK(done.user_data == 1 && done.result == LACUNA_DEADLINE);
        for (at = 0; at < 3000 && (count = poll_end(&pair, FAR, &done, 1)) == 0; at++)
            CHECK(lacuna_context_progress(pair.contexts[NEAR], NULL) == LACUNA_OK);
    } while (count == 0);
    CHECK(done.operation == LACUNA_OPERATION_WRITTEN && done.result == LACUNA_PEER && done.map);
    CHECK(done.ended.reason != LACUNA_REASON_WHOLE && !done.ended.is_complete);
    CHECK(done.ended.length == BYTES && done.ended.bytes > 0 && done.ended.bytes < BYTES);
    CHECK(strstr(lacuna_last_error(), "bytes came"));
    CHECK(lacuna_map_ranges(done.map, NULL, 0, &count) == LACUNA_OK && count > 0 && count <= 64);
    CHECK(lacuna_map_ranges(done.map, ranges, 64, NULL) == LACUNA_OK);
    CHECK(lacuna_map_gaps(done.map, gaps, 64, &gap_count) == LACUNA_OK && gap_count > 0);
    CHECK(lacuna_map_packets(done.map, &bits, 1, NULL) == LACUNA_USAGE);
    for (at = 0; at < count; at++) {
        CHECK(memcmp(there + ranges[at].offset, data + ranges[at].offset, ranges[at].length) == 0);
        came += ranges[at].length;
    }
    for (at = 0; at < gap_count && at < 64; at++) {
        for (byte = 0; byte < gaps[at].length; byte++)
            CHECK(there[gaps[at].offset + byte] == 0);
        missing += gaps[at].length;
    }
    CHECK(came == done.ended.bytes && came + missing == BYTES);
    lacuna_map_free(done.map);
    free_pair(&pair);
    lacuna_region_free(region);
}

/* Handles, and the forms of addresses. */
static void addresses(const char *progress)
{
    struct pair pair = make_pair(progress, 0, 0);
    struct lacuna_address address, same;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
    struct lacuna_slice slice;
    uint64_t peer = 0, again = 0;
    size_t length = 0;
    char text[80];
    memset(&v4, 0, sizeof(v4));
    v4.sin_family = AF_INET, v4.sin_port = htons(7400);
    v4.sin_addr.s_addr = htonl(0xc0000201);
    CHECK(lacuna_address_of(&v4, sizeof(v4), &address) == LACUNA_OK && address.port == 7400);
    CHECK(lacuna_address_text(&address, text, sizeof(text), &length) == LACUNA_OK);
    CHECK(strcmp(text, "192.0.2.1:7400") == 0 && length == strlen(text));
    CHECK(lacuna_address_parse(text, &same) == LACUNA_OK);
    CHECK(memcmp(&address, &same, sizeof(same)) == 0);
    CHECK(lacuna_address_sockaddr(&address, &storage, sizeof(storage), &length) == LACUNA_OK);
    CHECK(length == sizeof(v4) && memcmp(&storage, &v4, sizeof(v4)) == 0);
    CHECK(lacuna_datagram_peer(pair.ends[NEAR], &address, &peer) == LACUNA_OK);

    /* A link-local one has its interface. */
    memset(&v6, 0, sizeof(v6));
    v6.sin6_family = AF_INET6, v6.sin6_port = htons(7400), v6.sin6_scope_id = 1;
    v6.sin6_addr.s6_addr[0] = 0xfe, v6.sin6_addr.s6_addr[1] = 0x80, v6.sin6_addr.s6_addr[15] = 1;
    CHECK(lacuna_address_of(&v6, sizeof(v6), &address) == LACUNA_OK && address.scope == 1);
    CHECK(lacuna_datagram_peer(pair.ends[NEAR], &address, &again) == LACUNA_OK && again != peer);
    CHECK(lacuna_datagram_address(pair.ends[NEAR], again, &same) == LACUNA_OK);
    CHECK(memcmp(&address, &same, sizeof(same)) == 0);
    CHECK(lacuna_address_sockaddr(&same, &storage, sizeof(storage), &length) == LACUNA_OK);
    CHECK(length == sizeof(v6) && memcmp(&storage, &v6, sizeof(v6)) == 0);
    address.scope = 0;
    CHECK(lacuna_datagram_peer(pair.ends[NEAR], &address, &again) == LACUNA_USAGE);
    CHECK(strstr(lacuna_last_error(), "link-local"));

    /* One of IPv4 that is written as one of IPv6 is the same. */
    memset(&v6, 0, sizeof(v6));
    v6.sin6_family = AF_INET6, v6.sin6_port = htons(7400);
    memcpy(v6.sin6_addr.s6_addr, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01", 16);
    CHECK(lacuna_address_of(&v6, sizeof(v6), &address) == LACUNA_OK);
    CHECK(lacuna_datagram_peer(pair.ends[NEAR], &address, &again) == LACUNA_OK && again == peer);
    CHECK(lacuna_datagram_forget(pair.ends[NEAR], peer) == LACUNA_OK);
    /* Given back, and still known as nobody needs its place. */
    CHECK(lacuna_datagram_address(pair.ends[NEAR], peer, &same) == LACUNA_OK);
    CHECK(memcmp(&address, &same, sizeof(same)) == 0);
    slice.memory = data, slice.length = 1;
    CHECK(lacuna_datagram_send(pair.ends[NEAR], UINT64_MAX, &slice, 1, 0, 0, 1) == LACUNA_USAGE);
    CHECK(strstr(lacuna_last_error(), "no such peer"));
    free_pair(&pair);
}

/* What is sent to a group comes to all that have joined it, where the host has groups. */
static void group(const char *progress)
{
    struct pair pair = make_pair(progress, 0, 0);
    struct lacuna_datagram_settings settings = defaults();
    struct lacuna_completion done;
    struct lacuna_address address, local;
    struct lacuna_slice slice;
    struct lacuna_region *region;
    uint32_t key = 0;
    uint64_t to = 0;
    int end, tries = 0;
    settings.bind = NULL;
    /* The loopback interface. */
    settings.multicast_interface = 1, settings.multicast_ttl = 0;
    for (end = 0; end < 2; end++) {
        lacuna_datagram_free(pair.ends[end]);
        CHECK(lacuna_datagram_new(pair.contexts[end], &settings, &pair.ends[end]) == LACUNA_OK);
    }
    memset(there, 0, 3000), memset(inbox, 0, 3000);
    region = register_all(pair.contexts[FAR], there, 3000, &key);
    CHECK(lacuna_datagram_local(pair.ends[FAR], &local) == LACUNA_OK);
    CHECK(lacuna_address_parse("239.77.1.3:1", &address) == LACUNA_OK);
    address.port = local.port;
    CHECK(lacuna_datagram_join(pair.ends[FAR], &local, 1) == LACUNA_USAGE);
    if (lacuna_datagram_join(pair.ends[FAR], &address, 1) != LACUNA_OK)
        goto skipped;
    CHECK(lacuna_datagram_join(pair.ends[FAR], &address, 1) == LACUNA_SYSTEM);
    CHECK(lacuna_datagram_group(pair.ends[NEAR], &address, &to) == LACUNA_OK);
    slice.memory = inbox, slice.length = 3000;
    CHECK(lacuna_datagram_receive(pair.ends[FAR], &slice, 1, 1) == LACUNA_OK);
    CHECK(lacuna_datagram_name_region(pair.ends[FAR], 77, &key) == LACUNA_OK);
    slice.memory = data;
    CHECK(lacuna_datagram_send(pair.ends[NEAR], to, &slice, 1, 0, 0, 2) == LACUNA_OK);
    CHECK(next(&pair, NEAR).user_data == 2);
    while (poll_end(&pair, FAR, &done, 1) == 0) {
        CHECK(lacuna_context_progress(pair.contexts[NEAR], NULL) == LACUNA_OK);
        if (++tries > 3000)
            goto skipped;
    }
    CHECK(done.user_data == 1 && done.ended.bytes == 3000 && memcmp(inbox, data, 3000) == 0);
    CHECK(lacuna_datagram_local(pair.ends[NEAR], &local) == LACUNA_OK);
    CHECK(done.source.port == local.port);
    slice.memory = data + 1;
    CHECK(lacuna_datagram_write_named(pair.ends[NEAR], to, 77, 0, &slice, 1, 0, 0, 3) == LACUNA_OK);
    done = next(&pair, FAR);
    CHECK(done.operation == LACUNA_OPERATION_WRITTEN && done.key == key);
    CHECK(memcmp(there, data + 1, 3000) == 0);
    CHECK(next(&pair, NEAR).user_data == 3);
    /* A group has no memory to read. */
    CHECK(lacuna_datagram_read(pair.ends[NEAR], to, key, 0, &slice, 1, 10, 0, 4) == LACUNA_USAGE);
    CHECK(lacuna_datagram_leave(pair.ends[FAR], &address, 1) == LACUNA_OK);
    CHECK(lacuna_datagram_leave(pair.ends[FAR], &address, 1) == LACUNA_SYSTEM);
    if (0)
    skipped:
        fprintf(stderr, "not run: no groups on this machine: %s\n", lacuna_last_error());
    free_pair(&pair);
    lacuna_region_free(region);
}

int main(int argc, char **argv)
{
    const char *progress_is = argc > 1 ? argv[1] : "threads";
    size_t at;
    int way;
    for (at = 0; at < BYTES; at++)
        data[at] = byte_of(at);
    for (way = 0; way < 4; way++)
        verbs(progress_is, way & 1, way >> 1);
    errors(progress_is);
    nobody(progress_is);
    full_queue(progress_is);
    mixed(progress_is);
    partial(progress_is);
    addresses(progress_is);
    group(progress_is);
    puts("every datagram was told");
    return 0;
}
