/* Groups: each rank is a thread with a group of its own, and every operation is compared
 * with what it has to come to.
 *
 *     group
 */

#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

enum { RANKS = 3, COUNT = 3000, WAIT_MS = 60000 };

struct rank {
    uint32_t rank, ranks;
    const char *host, *mode;
    void (*run)(struct rank *rank);
    struct lacuna_group *group;
};

/* A port that was free a moment ago, as the host of a meeting. */
static void free_host(char *host, size_t capacity)
{
    struct sockaddr_in address;
    socklen_t length = sizeof(address);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof(address));
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(listening >= 0 && bind(listening, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(listening, (struct sockaddr *)&address, &length) == 0);
    snprintf(host, capacity, "127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
    close(listening);
}

static struct lacuna_settings *settings_of(const char *mode)
{
    struct lacuna_settings *settings = NULL;
    CHECK(lacuna_settings_new(&settings) == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "bind", "127.0.0.1") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "mode", mode) == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "job", "the test") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "meeting_timeout_ms", "60000") == LACUNA_OK);
    return settings;
}

static void *run_rank(void *given)
{
    struct rank *rank = (struct rank *)given;
    struct lacuna_settings *settings = settings_of(rank->mode);
    uint32_t number = 77;
    CHECK(lacuna_group_form(rank->host, rank->rank, rank->ranks, settings, &rank->group) ==
          LACUNA_OK);
    lacuna_settings_free(settings);
    CHECK(lacuna_group_rank(rank->group, &number) == LACUNA_OK && number == rank->rank);
    CHECK(lacuna_group_ranks(rank->group, &number) == LACUNA_OK && number == rank->ranks);
    rank->run(rank);
    lacuna_group_free(rank->group);
    return NULL;
}

static void on_ranks(uint32_t ranks, const char *mode, void (*run)(struct rank *rank))
{
    struct rank all[8];
    pthread_t threads[8];
    char host[40];
    uint32_t i;
    free_host(host, sizeof(host));
    memset(all, 0, sizeof(all));
    for (i = 0; i < ranks; i++) {
        all[i].rank = i, all[i].ranks = ranks;
        all[i].host = host, all[i].mode = mode, all[i].run = run;
        CHECK(pthread_create(&threads[i], NULL, run_rank, &all[i]) == 0);
    }
    for (i = 0; i < ranks; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* What a rank has at a place. Small enough that sums of floats are exact. */
static float value(uint32_t rank, size_t at)
{
    return (float)(rank * 3 + at % 100);
}

static float sum(uint32_t ranks, size_t at)
{
    float total = 0;
    uint32_t rank;
    for (rank = 0; rank < ranks; rank++)
        total += value(rank, at);
    return total;
}

static float *floats(uint32_t rank, size_t count)
{
    float *all = (float *)malloc((count + 1) * sizeof(float));
    size_t at;
    CHECK(all);
    for (at = 0; at < count; at++)
        all[at] = value(rank, at);
    return all;
}

static void each_operation(struct rank *rank)
{
    const uint32_t n = RANKS, me = rank->rank, f32 = LACUNA_ELEMENT_F32;
    const uint64_t counts[RANKS] = {COUNT, 0, 7};
    const uint64_t offsets[RANKS + 1] = {0, COUNT, COUNT, COUNT + 7};
    uint64_t sent[RANKS], received[RANKS];
    struct lacuna_group *group = rank->group;
    float *input = floats(me, n * COUNT), *output = floats(9, n * COUNT);
    size_t at, to = 0;
    uint32_t i;

    CHECK(lacuna_group_barrier(group, NULL, NULL) == LACUNA_OK);
    CHECK(lacuna_group_all_reduce(group, input, output, COUNT, f32, LACUNA_REDUCTION_SUM, NULL,
                                  NULL) == LACUNA_OK);
    for (at = 0; at < COUNT; at++)
        CHECK(output[at] == sum(n, at));

    CHECK(lacuna_group_reduce_scatter(group, input, output, COUNT, NULL, f32,
                                      LACUNA_REDUCTION_MAX, NULL, NULL) == LACUNA_OK);
    for (at = 0; at < COUNT; at++)
        CHECK(output[at] == value(n - 1, me * COUNT + at));
    CHECK(lacuna_group_reduce_scatter(group, input, output, 0, counts, f32, LACUNA_REDUCTION_SUM,
                                      NULL, NULL) == LACUNA_OK);
    for (at = 0; at < counts[me]; at++)
        CHECK(output[at] == sum(n, offsets[me] + at));

    CHECK(lacuna_group_all_gather(group, input, output, COUNT, NULL, f32, NULL, NULL) ==
          LACUNA_OK);
    for (at = 0; at < n * COUNT; at++)
        CHECK(output[at] == value((uint32_t)(at / COUNT), at % COUNT));
    CHECK(lacuna_group_all_gather(group, input, output, 0, counts, f32, NULL, NULL) == LACUNA_OK);
    for (i = 0; i < n; i++)
        for (at = 0; at < counts[i]; at++)
            CHECK(output[offsets[i] + at] == value(i, at));

    /* Of all ranks but the root the input does not count. */
    CHECK(lacuna_group_broadcast(group, me == 1 ? input : NULL, output, COUNT, 1, f32, NULL,
                                 NULL) == LACUNA_OK);
    for (at = 0; at < COUNT; at++)
        CHECK(output[at] == value(1, at));

    CHECK(lacuna_group_reduce(group, input, me == 2 ? output : NULL, COUNT, 2, f32,
                              LACUNA_REDUCTION_AVERAGE, NULL, NULL) == LACUNA_OK);
    for (at = 0; me == 2 && at < COUNT; at++)
        CHECK(output[at] == sum(n, at) / (float)n);

    CHECK(lacuna_group_gather(group, input, me == 0 ? output : NULL, 0, counts, 0, f32, NULL,
                              NULL) == LACUNA_OK);
    for (i = 0; me == 0 && i < n; i++)
        for (at = 0; at < counts[i]; at++)
            CHECK(output[offsets[i] + at] == value(i, at));

    CHECK(lacuna_group_scatter(group, me == 0 ? input : NULL, output, COUNT, NULL, 0, f32, NULL,
                               NULL) == LACUNA_OK);
    for (at = 0; at < COUNT; at++)
        CHECK(output[at] == value(0, me * COUNT + at));

    CHECK(lacuna_group_all_to_all(group, input, output, COUNT, NULL, NULL, f32, NULL, NULL) ==
          LACUNA_OK);
    for (at = 0; at < n * COUNT; at++)
        CHECK(output[at] == value((uint32_t)(at / COUNT), me * COUNT + at % COUNT));
    /* From rank a to rank b go 10 a + b. */
    for (i = 0; i < n; i++)
        sent[i] = 10 * me + i, received[i] = 10 * i + me;
    CHECK(lacuna_group_all_to_all(group, input, output, 0, sent, received, f32, NULL, NULL) ==
          LACUNA_OK);
    for (i = 0; i < n; i++) {
        size_t begin = 0, k;
        for (k = 0; k < me; k++)
            begin += 10 * i + k;
        for (k = 0; k < received[i]; k++)
            CHECK(output[to++] == value(i, begin + k));
    }

    /* In a ring, and then from rank 0 to rank 2 alone. */
    CHECK(lacuna_group_exchange(group, input, (me + 1) % n, COUNT, output, (me + n - 1) % n, COUNT,
                                f32, NULL, NULL) == LACUNA_OK);
    for (at = 0; at < COUNT; at++)
        CHECK(output[at] == value((me + n - 1) % n, at));
    CHECK(lacuna_group_exchange(group, input, me == 0 ? 2 : UINT32_MAX, COUNT, output,
                                me == 2 ? 0 : UINT32_MAX, COUNT, f32, NULL, NULL) == LACUNA_OK);
    for (at = 0; me == 2 && at < COUNT; at++)
        CHECK(output[at] == value(0, at));
    free(input);
    free(output);
}

static void in_place(struct rank *rank)
{
    const uint32_t n = RANKS, me = rank->rank, f32 = LACUNA_ELEMENT_F32;
    struct lacuna_group *group = rank->group;
    float *both = floats(me, n * COUNT), *alone = floats(me, COUNT);
    int32_t whole[4] = {INT32_MAX, -7, (int32_t)me, 5};
    size_t at;
    CHECK(lacuna_group_all_reduce(group, NULL, both, COUNT, f32, LACUNA_REDUCTION_SUM, NULL,
                                  NULL) == LACUNA_OK);
    for (at = 0; at < COUNT; at++)
        CHECK(both[at] == sum(n, at));
    /* The same memory twice is in place as well, where both are as long. */
    CHECK(lacuna_group_all_reduce(group, whole, whole, 4, LACUNA_ELEMENT_I32,
                                  LACUNA_REDUCTION_SUM, NULL, NULL) == LACUNA_OK);
    CHECK(whole[0] == INT32_MAX - 2 && whole[1] == -21 && whole[2] == 3 && whole[3] == 15);
    for (at = 0; at < COUNT; at++)
        both[me * COUNT + at] = alone[at];
    CHECK(lacuna_group_all_gather(group, NULL, both, COUNT, NULL, f32, NULL, NULL) == LACUNA_OK);
    for (at = 0; at < n * COUNT; at++)
        CHECK(both[at] == value((uint32_t)(at / COUNT), at % COUNT));
    CHECK(lacuna_group_reduce_scatter(group, NULL, both, COUNT, NULL, f32, LACUNA_REDUCTION_SUM,
                                      NULL, NULL) == LACUNA_OK);
    for (at = 0; at < COUNT; at++)
        CHECK(both[me * COUNT + at] == (float)n * value(me, at));
    CHECK(lacuna_group_broadcast(group, NULL, alone, COUNT, 2, f32, NULL, NULL) == LACUNA_OK);
    for (at = 0; at < COUNT; at++)
        CHECK(alone[at] == value(2, at));
    /* What cannot be in place, and what overlaps otherwise, changes nothing. */
    CHECK_ERROR(lacuna_group_all_to_all(group, NULL, both, 4, NULL, NULL, f32, NULL, NULL),
                "input is NULL");
    CHECK_ERROR(lacuna_group_all_gather(group, both, both, COUNT, NULL, f32, NULL, NULL),
                "overlap");
    free(both);
    free(alone);
}

static void several_at_once(struct rank *rank)
{
    enum { OPERATIONS = 4 };
    struct lacuna_group *group = rank->group;
    struct lacuna_group_operation *going[OPERATIONS];
    struct lacuna_group_report report;
    struct lacuna_group_options options;
    float *inputs[OPERATIONS], *outputs[OPERATIONS];
    char text[40];
    size_t at, length, missing = 7;
    int i, result;
    memset(&options, 0, sizeof(options));
    options.algorithm = "cube:2";
    options.budget = LACUNA_BUDGET_WITHIN;
    options.budget_us = (uint64_t)WAIT_MS * 1000;
    for (i = 0; i < OPERATIONS; i++) {
        inputs[i] = floats(rank->rank, COUNT), outputs[i] = floats(9, COUNT);
        CHECK(lacuna_group_all_reduce(group, inputs[i], outputs[i], COUNT, LACUNA_ELEMENT_F32,
                                      LACUNA_REDUCTION_SUM, &options, &going[i]) == LACUNA_OK);
    }
    for (i = OPERATIONS - 1; i >= 0; i--) {
        if (i % 2)
            result = lacuna_group_operation_wait(going[i], WAIT_MS);
        else
            while ((result = lacuna_group_operation_poll(going[i])) == LACUNA_RETRY)
                ;
        CHECK(result == LACUNA_OK);
        for (at = 0; at < COUNT; at++)
            CHECK(outputs[i][at] == sum(RANKS, at));
        CHECK(lacuna_group_operation_report(going[i], &report) == LACUNA_OK);
        CHECK(report.bytes > 0 && report.lost_bytes == 0 && report.missing_elements == 0);
        CHECK(report.took_ns > 0 && report.budget_ns == 0);
        CHECK(report.straggler_rank < RANKS || report.straggler_rank == UINT32_MAX);
        CHECK(lacuna_group_operation_missing(going[i], NULL, 0, &missing) == LACUNA_OK &&
              missing == 0);
        CHECK(lacuna_group_operation_algorithm(going[i], text, sizeof(text), &length) ==
                  LACUNA_OK &&
              strcmp(text, "cube:2") == 0 && length == 6);
        CHECK(lacuna_group_operation_free(going[i]) == LACUNA_OK);
        CHECK_ERROR(lacuna_group_operation_free(going[i]), "was freed");
        free(inputs[i]);
        free(outputs[i]);
    }
}

/* Rank 2 comes later, so that the others end without it. */
static pthread_barrier_t late, all_over;

static void in_time(struct rank *rank)
{
    struct lacuna_group_options options;
    struct lacuna_group_operation *going = NULL;
    struct lacuna_group_report report;
    struct lacuna_group_missing *missing;
    float *input = floats(rank->rank, COUNT), *output = floats(9, COUNT);
    unsigned char told[COUNT] = {0};
    size_t at, count = 0, listed = 0;
    memset(&options, 0, sizeof(options));
    options.algorithm = "transpose";
    options.budget = LACUNA_BUDGET_FIXED;
    options.budget_us = 300000;
    options.divisor = LACUNA_DIVISOR_RANKS;
    if (rank->rank == 2)
        pthread_barrier_wait(&late);
    CHECK(lacuna_group_all_reduce(rank->group, input, output, COUNT, LACUNA_ELEMENT_F32,
                                  LACUNA_REDUCTION_SUM, &options, &going) == LACUNA_OK);
    CHECK(lacuna_group_operation_wait(going, WAIT_MS) == LACUNA_OK);
    CHECK(lacuna_group_operation_report(going, &report) == LACUNA_OK);
    CHECK(report.budget_ns == 300000000);
    CHECK(lacuna_group_operation_missing(going, NULL, 0, &count) == LACUNA_OK);
    CHECK((missing = (struct lacuna_group_missing *)malloc((count + 1) * sizeof(*missing))));
    CHECK(lacuna_group_operation_missing(going, missing, count, &listed) == LACUNA_OK);
    CHECK(listed == count);
    for (at = 0; at < count; at++) {
        CHECK(missing[at].count > 0 && missing[at].first + missing[at].count <= COUNT);
        CHECK(missing[at].rank < RANKS || missing[at].rank == UINT32_MAX);
        memset(told + missing[at].first, 1, missing[at].count);
    }
    if (rank->rank != 2)
        CHECK(report.lost_bytes > 0 && count > 0 && report.missing_elements > 0);
    /* What is not told of is right. */
    for (at = 0; at < COUNT; at++)
        CHECK(told[at] || output[at] == sum(RANKS, at));
    if (rank->rank == 0)
        pthread_barrier_wait(&late);
    /* Nobody leaves before rank 2 has ended. */
    pthread_barrier_wait(&all_over);
    CHECK(lacuna_group_operation_free(going) == LACUNA_OK);
    free(missing);
    free(input);
    free(output);
}

/* Rank 1 goes: the others are told, and go on as two. */
static void without_one(struct rank *rank)
{
    struct lacuna_group_operation *going = NULL;
    float *input = floats(rank->rank, COUNT), *output = floats(9, COUNT);
    uint32_t number = 77;
    size_t at;
    int result;
    /* Everybody has a group before one goes. */
    pthread_barrier_wait(&all_over);
    CHECK(lacuna_group_failed_rank(rank->group, &number) == LACUNA_OK && number == UINT32_MAX);
    if (rank->rank != 1) {
        CHECK(lacuna_group_all_reduce(rank->group, input, output, COUNT, LACUNA_ELEMENT_F32,
                                      LACUNA_REDUCTION_SUM, NULL, &going) == LACUNA_OK);
        while ((result = lacuna_group_operation_wait(going, WAIT_MS)) == LACUNA_RETRY)
            ;
        CHECK(result == LACUNA_PEER && strstr(lacuna_last_error(), "rank 1"));
        CHECK(lacuna_group_failed_rank(rank->group, &number) == LACUNA_OK && number == 1);
        CHECK(lacuna_group_barrier(rank->group, NULL, NULL) == LACUNA_PEER);
        CHECK(lacuna_group_operation_free(going) == LACUNA_OK);
        CHECK(lacuna_group_form_again(rank->group, WAIT_MS) == LACUNA_OK);
        CHECK(lacuna_group_rank(rank->group, &number) == LACUNA_OK && number == rank->rank / 2);
        CHECK(lacuna_group_ranks(rank->group, &number) == LACUNA_OK && number == 2);
        CHECK(lacuna_group_all_reduce(rank->group, input, output, COUNT, LACUNA_ELEMENT_F32,
                                      LACUNA_REDUCTION_SUM, NULL, NULL) == LACUNA_OK);
        for (at = 0; at < COUNT; at++)
            CHECK(output[at] == value(0, at) + value(2, at));
    }
    free(input);
    free(output);
}

static float sum_of_ones(struct lacuna_group *group)
{
    float one = 1;
    CHECK(lacuna_group_all_reduce(group, NULL, &one, 1, LACUNA_ELEMENT_F32, LACUNA_REDUCTION_SUM,
                                  NULL, NULL) == LACUNA_OK);
    return one;
}

/* Ranks 0 and 2 in the reverse order, 1 and 3 have none; and all with each other besides. */
static void in_parts(struct rank *rank)
{
    struct lacuna_group *part = NULL, *all = NULL;
    struct lacuna_group_operation *going = NULL;
    float one = 1;
    uint32_t number = 77;
    const uint32_t me = rank->rank;
    CHECK(lacuna_group_split(rank->group, me % 2 ? -1 : 5, -(int64_t)me, &part) == LACUNA_OK);
    CHECK(lacuna_group_split(rank->group, INT64_MAX, 0, &all) == LACUNA_OK);
    CHECK(!part == (me % 2 == 1) && all);
    CHECK(lacuna_group_all_reduce(all, NULL, &one, 1, LACUNA_ELEMENT_F32, LACUNA_REDUCTION_SUM,
                                  NULL, &going) == LACUNA_OK);
    if (part) {
        CHECK(lacuna_group_rank(part, &number) == LACUNA_OK && number == (me == 0));
        CHECK(lacuna_group_ranks(part, &number) == LACUNA_OK && number == 2);
        CHECK(sum_of_ones(part) == 2);
        lacuna_group_free(part);
    }
    CHECK(sum_of_ones(rank->group) == 4);
    while (lacuna_group_operation_wait(going, WAIT_MS) == LACUNA_RETRY)
        ;
    CHECK(one == 4 && lacuna_group_operation_free(going) == LACUNA_OK);
    lacuna_group_free(all);
}

static char door[40];

static void *join_later(void *given)
{
    struct lacuna_settings *settings = settings_of("auto");
    struct lacuna_group *group = NULL;
    uint32_t number = 77;
    (void)given;
    CHECK(lacuna_group_join(door, settings, &group) == LACUNA_OK);
    lacuna_settings_free(settings);
    CHECK(lacuna_group_rank(group, &number) == LACUNA_OK && number == 2);
    CHECK(sum_of_ones(group) == 3);
    lacuna_group_free(group);
    return NULL;
}

static void with_a_newcomer(struct rank *rank)
{
    uint32_t number = 77;
    CHECK(lacuna_group_form_with(rank->group, door, 1, WAIT_MS) == LACUNA_OK);
    CHECK(lacuna_group_ranks(rank->group, &number) == LACUNA_OK && number == 3);
    CHECK(lacuna_group_rank(rank->group, &number) == LACUNA_OK && number == rank->rank);
    CHECK(sum_of_ones(rank->group) == 3);
}

static void two_and_a_newcomer(void)
{
    pthread_t joining;
    free_host(door, sizeof(door));
    CHECK(pthread_create(&joining, NULL, join_later, NULL) == 0);
    on_ranks(2, "auto", with_a_newcomer);
    CHECK(pthread_join(joining, NULL) == 0);
}

/* Memory of an operation that nobody else starts is the program's behind the group. */
static void freed_with_operations(struct rank *rank)
{
    struct lacuna_group_operation *going = NULL;
    float *output = floats(rank->rank, COUNT);
    if (rank->rank == 0) {
        CHECK(lacuna_group_all_reduce(rank->group, NULL, output, COUNT, LACUNA_ELEMENT_F32,
                                      LACUNA_REDUCTION_SUM, NULL, &going) == LACUNA_OK);
        CHECK(lacuna_group_operation_poll(going) == LACUNA_RETRY);
        CHECK(lacuna_group_operation_wait(going, 1) == LACUNA_RETRY);
        CHECK(lacuna_group_operation_free(going) == LACUNA_RETRY);
    }
    pthread_barrier_wait(&all_over);
    lacuna_group_free(rank->group);
    rank->group = NULL;
    free(output);
}

static void by_the_environment(void)
{
    struct lacuna_group *group = NULL;
    struct lacuna_settings *settings = settings_of("sr");
    float value = 3;
    char host[40];
    unsetenv("LACUNA_RENDEZVOUS");
    unsetenv("RANK");
    CHECK_ERROR(lacuna_group_form_from_environment(settings, &group), "RANK is not set");
    free_host(host, sizeof(host));
    setenv("LACUNA_RENDEZVOUS", host, 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    CHECK(lacuna_group_form_from_environment(settings, &group) == LACUNA_OK);
    CHECK(lacuna_group_all_reduce(group, NULL, &value, 1, LACUNA_ELEMENT_F32,
                                  LACUNA_REDUCTION_AVERAGE, NULL, NULL) == LACUNA_OK);
    CHECK(value == 3);
    lacuna_group_free(group);
    lacuna_settings_free(settings);
}

int main(void)
{
    by_the_environment();
    on_ranks(RANKS, "sr", each_operation);
    on_ranks(RANKS, "auto", in_place);
    on_ranks(RANKS, "auto", several_at_once);
    CHECK(pthread_barrier_init(&late, NULL, 2) == 0);
    CHECK(pthread_barrier_init(&all_over, NULL, RANKS) == 0);
    on_ranks(RANKS, "bounded", in_time);
    on_ranks(RANKS, "auto", without_one);
    on_ranks(RANKS, "auto", freed_with_operations);
    pthread_barrier_destroy(&late);
    pthread_barrier_destroy(&all_over);
    on_ranks(4, "auto", in_parts);
    two_and_a_newcomer();
    puts("every rank agreed");
    return 0;
}
