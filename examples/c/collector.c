/* A telemetry collector with lacuna.h: one datagram queue pair, very many clients, no
 * connections.
 *
 *     collector [CLIENTS [ROUNDS]]
 *
 * The clients live in this process, too, each with an address of its own in 127.0.0.0/8
 * where the system has those (Linux), else with a port of its own; some dozens at a time,
 * since each has a socket. The collector has one for all. In each round every client
 *
 * - sends a sample to the next receive of the collector, and
 * - writes its latest state into its own place in the collector's table (a Write-Record:
 *   the collector posts nothing for it, and is told what came).
 *
 * The collector counts by source, and takes the table's map of what was written. At its
 * end a client reads its place of the table back.
 *
 * Datagrams are not repaired. Here a round ends when its messages were taken, so that none
 * is lost and the counts are exact; over a network the collector would print how many were
 * missed, which the numbers of the messages tell.
 */

#define _POSIX_C_SOURCE 200809L

#include <lacuna.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_BYTES = 64, STATE_BYTES = 256, RECEIVES = 256, BATCH = 64 };
enum { CLIENTS_MAX = 10000, GROUP_MAX = 64, TIMEOUT_MS = 20000 };

struct sample {
    uint32_t client, round;
    unsigned char values[SAMPLE_BYTES - 8];
};

struct client {
    struct lacuna_datagram *queue_pair;
    struct lacuna_address address;
    /* The collector. */
    uint64_t to;
    struct sample sample;
    unsigned char state[STATE_BYTES];
};

static struct lacuna_context *context;
static struct client *clients;
static uint32_t client_count = 1000;

/* The collector. */
static struct lacuna_datagram *collector;
static struct lacuna_completion_queue *queue;
static struct sample receives[RECEIVES];
static unsigned char *table;
static uint64_t *samples_of, *states_of;
static uint64_t samples, states, missed;

static void check(int result, const char *call)
{
    if (result != LACUNA_OK) {
        fprintf(stderr, "%s: %s\n", call, lacuna_last_error());
        exit(1);
    }
}

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static unsigned char byte_of(uint32_t client, uint32_t round, size_t at)
{
    return (unsigned char)(1 + (client * 31 + round * 7 + at) % 255);
}

static void post_receive(size_t at)
{
    struct lacuna_slice slice = {&receives[at], sizeof(receives[at])};
    check(lacuna_datagram_receive(collector, &slice, 1, at), "lacuna_datagram_receive");
}

static void make_collector(uint32_t *key, struct lacuna_region **region)
{
    struct lacuna_datagram_settings settings;
    struct lacuna_region_options options;
    size_t at;
    /* An entry for each receive, and room for Write-Records, which take one while they wait. */
    check(lacuna_completion_queue_new(context, RECEIVES + 4096, &queue),
          "lacuna_completion_queue_new");
    check(lacuna_datagram_settings_default(&settings), "lacuna_datagram_settings_default");
    settings.bind = "127.0.0.1";
    settings.completions = queue;
    check(lacuna_datagram_new(context, &settings, &collector), "lacuna_datagram_new");
    memset(&options, 0, sizeof(options));
    options.rights = LACUNA_RIGHT_REMOTE_WRITE | LACUNA_RIGHT_REMOTE_READ;
    options.has_validity = 1;
    check(lacuna_region_new(context, table, (size_t)client_count * STATE_BYTES, &options, region),
          "lacuna_region_new");
    check(lacuna_region_key(*region, key), "lacuna_region_key");
    for (at = 0; at < RECEIVES; at++)
        post_receive(at);
}

static void make_client(uint32_t number, const struct lacuna_address *to)
{
    struct client *client = &clients[number];
    struct lacuna_datagram_settings settings;
    char bind[20];
    check(lacuna_datagram_settings_default(&settings), "lacuna_datagram_settings_default");
#ifdef __linux__
    snprintf(bind, sizeof(bind), "127.1.%u.%u", (unsigned)(number >> 8), (unsigned)(number & 255));
#else
    snprintf(bind, sizeof(bind), "127.0.0.1");
#endif
    settings.bind = bind;
    settings.receive_buffer_bytes = 65536;
    settings.peers_max = 4;
    check(lacuna_datagram_new(context, &settings, &client->queue_pair), "lacuna_datagram_new");
    check(lacuna_datagram_local(client->queue_pair, &client->address), "lacuna_datagram_local");
    check(lacuna_datagram_peer(client->queue_pair, to, &client->to), "lacuna_datagram_peer");
}

/* Which client has this address: the collector knows them all, as it has a table. */
static uint32_t client_of(const struct lacuna_address *source)
{
#ifdef __linux__
    uint32_t number = (uint32_t)source->ip[14] << 8 | source->ip[15];
#else
    uint32_t number = 0;
    while (number < client_count && clients[number].address.port != source->port)
        number++;
#endif
    if (number >= client_count || memcmp(&clients[number].address, source, sizeof(*source)) != 0)
        fail("a message of a stranger");
    return number;
}

static void on_completion(struct lacuna_completion *done, uint32_t round, uint32_t key)
{
    uint32_t client;
    size_t at;
    if (done->result != LACUNA_OK) {
        fprintf(stderr, "a message failed: %s\n", lacuna_last_error());
        exit(1);
    }
    client = client_of(&done->source);
    missed += done->missed;
    if (done->operation == LACUNA_OPERATION_RECEIVE) {
        const struct sample *sample = &receives[done->user_data];
        if (done->ended.length != SAMPLE_BYTES || sample->client != client || sample->round != round)
            fail("a sample is wrong");
        for (at = 0; at < sizeof(sample->values); at++)
            if (sample->values[at] != byte_of(client, round, at))
                fail("a sample is wrong");
        samples++, samples_of[client]++;
        post_receive(done->user_data);
    } else if (done->operation == LACUNA_OPERATION_WRITTEN) {
        if (done->key != key || done->address != (uint64_t)client * STATE_BYTES ||
            done->ended.length != STATE_BYTES || !done->ended.is_complete)
            fail("a state is wrong");
        states++, states_of[client]++;
    }
    lacuna_map_free(done->map);
}

/* Takes what has come until there are so many of each. */
static void collect(uint64_t wanted, uint32_t round, uint32_t key)
{
    struct lacuna_completion completions[BATCH];
    size_t count, at;
    while (samples < wanted || states < wanted) {
        check(lacuna_completion_queue_poll(queue, completions, BATCH, TIMEOUT_MS, &count),
              "lacuna_completion_queue_poll");
        if (count == 0)
            fail("a message has not come");
        for (at = 0; at < count; at++)
            on_completion(&completions[at], round, key);
    }
}

static void post_messages(uint32_t number, uint32_t round, uint32_t key)
{
    struct client *client = &clients[number];
    struct lacuna_slice slice;
    size_t at;
    client->sample.client = number, client->sample.round = round;
    for (at = 0; at < sizeof(client->sample.values); at++)
        client->sample.values[at] = byte_of(number, round, at);
    for (at = 0; at < STATE_BYTES; at++)
        client->state[at] = byte_of(number, round, at);
    /* Silent: nothing has to be polled, and the bytes are copied. */
    slice.memory = &client->sample, slice.length = SAMPLE_BYTES;
    check(lacuna_datagram_send(client->queue_pair, client->to, &slice, 1, 0, LACUNA_QUEUED_SILENT, 0),
          "lacuna_datagram_send");
    slice.memory = client->state, slice.length = STATE_BYTES;
    check(lacuna_datagram_write_record(client->queue_pair, client->to, key,
                                       (uint64_t)number * STATE_BYTES, &slice, 1, 0,
                                       LACUNA_QUEUED_SILENT, 0),
          "lacuna_datagram_write_record");
}

/* The places of some clients were written since the map was taken last, and are theirs. */
static void take_places(struct lacuna_region *region, uint32_t first, uint32_t end, uint32_t round)
{
    uint8_t bits[GROUP_MAX * STATE_BYTES / 64 / 8];
    size_t start = (size_t)first * STATE_BYTES, bytes = (size_t)(end - first) * STATE_BYTES, at;
    check(lacuna_region_take_valid(region, start, bytes, bits, sizeof(bits)),
          "lacuna_region_take_valid");
    for (at = 0; at < bytes / 64; at++)
        if (!(bits[at / 8] >> at % 8 & 1))
            fail("a part of the table was not written");
    for (at = start; at < start + bytes; at++)
        if (table[at] != byte_of((uint32_t)(at / STATE_BYTES), round, at % STATE_BYTES))
            fail("the table is wrong");
}

static void read_back(uint32_t number, uint32_t key)
{
    struct client *client = &clients[number];
    unsigned char state[STATE_BYTES];
    struct lacuna_slice slice = {state, STATE_BYTES};
    struct lacuna_completion done;
    size_t count = 0;
    check(lacuna_datagram_read(client->queue_pair, client->to, key, (uint64_t)number * STATE_BYTES,
                               &slice, 1, TIMEOUT_MS, 0, 1),
          "lacuna_datagram_read");
    check(lacuna_datagram_poll(client->queue_pair, &done, 1, TIMEOUT_MS, &count),
          "lacuna_datagram_poll");
    if (count != 1 || done.result != LACUNA_OK || memcmp(state, client->state, STATE_BYTES) != 0)
        fail("the state cannot be read back");
}

/* The whole life of some clients. */
static void run_clients(uint32_t first, uint32_t end, uint32_t rounds, uint32_t key,
                        struct lacuna_region *region)
{
    struct lacuna_address address;
    uint64_t before = samples;
    uint32_t number, round;
    check(lacuna_datagram_local(collector, &address), "lacuna_datagram_local");
    for (number = first; number < end; number++)
        make_client(number, &address);
    for (round = 0; round < rounds; round++) {
        for (number = first; number < end; number++)
            post_messages(number, round, key);
        collect(before + (uint64_t)(round + 1) * (end - first), round, key);
        take_places(region, first, end, round);
    }
    for (number = first; number < end; number++) {
        read_back(number, key);
        lacuna_datagram_free(clients[number].queue_pair);
    }
}

int main(int argc, char **argv)
{
    struct lacuna_settings *settings = NULL;
    struct lacuna_region *region = NULL;
    uint32_t rounds = 3, number, key = 0;
    char text[4000];
    if (argc > 1)
        client_count = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        rounds = (uint32_t)strtoul(argv[2], NULL, 10);
    if (argc > 3 || client_count == 0 || client_count > CLIENTS_MAX || rounds == 0) {
        fprintf(stderr, "usage: collector [CLIENTS [ROUNDS]], up to %d clients\n", (int)CLIENTS_MAX);
        return 2;
    }
    clients = (struct client *)calloc(client_count, sizeof(*clients));
    table = (unsigned char *)calloc(client_count, STATE_BYTES);
    samples_of = (uint64_t *)calloc(client_count, sizeof(*samples_of));
    states_of = (uint64_t *)calloc(client_count, sizeof(*states_of));
    if (!clients || !table || !samples_of || !states_of)
        fail("no memory");
    /* Both sides are in this thread, so its calls make progress for both. */
    check(lacuna_settings_new(&settings), "lacuna_settings_new");
    check(lacuna_settings_set(settings, "bind", "127.0.0.1"), "bind");
    check(lacuna_settings_set(settings, "progress", "manual"), "progress");
    check(lacuna_context_new(settings, &context), "lacuna_context_new");
    make_collector(&key, &region);
    for (number = 0; number < client_count; number += GROUP_MAX) {
        uint32_t left = client_count - number;
        uint32_t end = left < GROUP_MAX ? client_count : number + GROUP_MAX;
        run_clients(number, end, rounds, key, region);
    }
    for (number = 0; number < client_count; number++)
        if (samples_of[number] != rounds || states_of[number] != rounds)
            fail("a client's count is wrong");
    check(lacuna_datagram_stats_json(collector, text, sizeof(text), NULL),
          "lacuna_datagram_stats_json");
    printf("%u clients: %llu samples, %llu states, %llu missed\n%s\n", (unsigned)client_count,
           (unsigned long long)samples, (unsigned long long)states, (unsigned long long)missed, text);
    lacuna_datagram_free(collector);
    lacuna_completion_queue_free(queue);
    lacuna_region_free(region);
    lacuna_context_free(context);
    lacuna_settings_free(settings);
    free(clients), free(table), free(samples_of), free(states_of);
    return 0;
}
