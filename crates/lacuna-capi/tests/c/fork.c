/* What a child process may do with what it has inherited, and what that does to its
 * parent: nothing. Each child is made while connections are open, receives posted,
 * sends under way and a thread of the parent waits in a call; after each, the parent
 * transfers data and looks at every byte.
 *
 *     fork manual|threads      the calls of lacuna.h
 *     fork sdr DEVICE          the calls of sdr.h and sdr_mr.h
 *
 * It prints a line for each function that a child has called. */

#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { BYTES = 1 << 20, WAIT_MS = 60000, SECONDS_MAX = 120 };

/* What a child may not do with what it has inherited. */
#define REFUSED(name, ...)                                                    \
    do {                                                                      \
        CHECK(name(__VA_ARGS__) == LACUNA_USAGE);                             \
        CHECK(strstr(lacuna_last_error(), "make a context here, or call exec")); \
        puts(#name);                                                          \
    } while (0)
/* What it may do. */
#define DONE(name, ...)                    \
    do {                                   \
        CHECK(name(__VA_ARGS__) == 0);     \
        puts(#name);                       \
    } while (0)

static unsigned char data[BYTES], buffer[BYTES];

/* The sanitizer's allocator may be locked for ever in a child, by a thread of the
 * parent that was in it at the fork (glibc's is made free). So its children do not
 * make threads of their own, which allocate without end. */
#ifdef __SANITIZE_ADDRESS__
enum { ALLOCATES_IN_CHILDREN = 0 };
#else
enum { ALLOCATES_IN_CHILDREN = 1 };
#endif

static void fill(unsigned round)
{
    size_t at;
    for (at = 0; at < BYTES; at++) {
        data[at] = (unsigned char)(at * 7 + (at >> 9) + round);
        buffer[at] = 0;
    }
}

/* Open sockets, and what threads wait with: a checker that the program runs under has
 * descriptors of other kinds. */
static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    char name[300], is[100];
    int count = 0;
    CHECK(folder);
    while ((entry = readdir(folder))) {
        ssize_t length;
        snprintf(name, sizeof(name), "/proc/self/fd/%s", entry->d_name);
        length = readlink(name, is, sizeof(is));
        count += length > 11 && (!memcmp(is, "socket:", 7) || !memcmp(is, "anon_inode:", 11));
    }
    closedir(folder);
    return count;
}

/* Runs `run` in a child process. A child that hangs is killed, and is an error. */
static void in_a_child(void (*run)(void))
{
    int status = 0;
    pid_t child;
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(SECONDS_MAX);
        run();
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- lacuna.h ---- */

static struct lacuna_settings *settings;
static struct lacuna_context *here, *there;
static struct lacuna_listener *listener;
static struct lacuna_connection *near_end, *far_end;
/* It waits for a receive, and the receive for a message, as the child is made. */
static struct lacuna_send *waiting_send;
static struct lacuna_receive *waiting_receive;
static unsigned char waiting_bytes[3000], waiting_room[3000];
/* What came of a receive that was taken back at once: nothing. */
static struct lacuna_map *map;
static unsigned char region_bytes[4096];
static struct lacuna_region *region;
static struct lacuna_window *window;
/* The near end completes into it. */
static struct lacuna_completion_queue *queue;
/* It sends to itself. */
static struct lacuna_datagram *datagram;
static uint64_t peer;
/* Of one rank. The operation is done, and not freed. */
static struct lacuna_group *group;
static struct lacuna_group_operation *operation;
static char address[40];
static int before;

static void *accept_one(void *accepted)
{
    CHECK(lacuna_listener_accept(listener, (struct lacuna_connection **)accepted) == LACUNA_OK);
    return NULL;
}

/* The far end's share of the work, which with manual progress is the program's. */
struct work {
    struct lacuna_context *context;
    pthread_t thread;
    int ends;
};
static struct work *working;

static void *work(void *given)
{
    struct work *work = (struct work *)given;
    while (!GET(work->ends)) {
        CHECK(lacuna_context_progress(work->context, NULL) == LACUNA_OK);
        sched_yield();
    }
    return NULL;
}

static void register_region(void)
{
    struct lacuna_region_options options;
    memset(&options, 0, sizeof(options));
    options.has_validity = 1;
    CHECK(lacuna_region_new(there, region_bytes, sizeof(region_bytes), &options, &region) ==
          LACUNA_OK);
    CHECK(lacuna_region_window(region, 0, 64, 0, &window) == LACUNA_OK);
}

static void open_datagram(void)
{
    struct lacuna_datagram_settings chosen;
    struct lacuna_address local;
    CHECK(lacuna_datagram_settings_default(&chosen) == LACUNA_OK);
    chosen.bind = "127.0.0.1";
    CHECK(lacuna_datagram_new(here, &chosen, &datagram) == LACUNA_OK);
    CHECK(lacuna_datagram_local(datagram, &local) == LACUNA_OK);
    CHECK(lacuna_datagram_peer(datagram, &local, &peer) == LACUNA_OK);
}

/* Both ends of a connection over two contexts. */
static void open_connection(void)
{
    uint16_t port = 0;
    pthread_t accepting;
    CHECK(lacuna_context_new(settings, &here) == LACUNA_OK);
    CHECK(lacuna_context_new(settings, &there) == LACUNA_OK);
    register_region();
    CHECK(lacuna_listener_new(there, "127.0.0.1:0", settings, &listener) == LACUNA_OK);
    CHECK(lacuna_listener_port(listener, &port) == LACUNA_OK);
    snprintf(address, sizeof(address), "127.0.0.1:%u", (unsigned)port);
    CHECK((working = (struct work *)calloc(1, sizeof(*working))));
    working->context = there;
    CHECK(pthread_create(&working->thread, NULL, work, working) == 0);
    CHECK(pthread_create(&accepting, NULL, accept_one, &far_end) == 0);
    CHECK(lacuna_connect(here, address, settings, &near_end) == LACUNA_OK);
    CHECK(pthread_join(accepting, NULL) == 0);
    CHECK(lacuna_completion_queue_new(here, 10, &queue) == LACUNA_OK);
    CHECK(lacuna_complete_to(near_end, queue) == LACUNA_OK);
    open_datagram();
}

static void open_group(void)
{
    static const float one = 1;
    static float sum;
    CHECK(lacuna_group_form("127.0.0.1:0", 0, 1, NULL, &group) == LACUNA_OK);
    CHECK(lacuna_group_all_reduce(group, &one, &sum, 1, LACUNA_ELEMENT_F32, LACUNA_REDUCTION_SUM, NULL, &operation) ==
          LACUNA_OK);
    CHECK(lacuna_group_operation_wait(operation, WAIT_MS) == LACUNA_OK);
}

/* A message to itself: the receive and the send end, in whatever order. */
static void transfer_datagram(void)
{
    struct lacuna_completion done[2];
    struct lacuna_slice slice;
    size_t count = 0, more = 0;
    slice.memory = buffer, slice.length = 5000;
    CHECK(lacuna_datagram_receive(datagram, &slice, 1, 1) == LACUNA_OK);
    slice.memory = data;
    CHECK(lacuna_datagram_send(datagram, peer, &slice, 1, WAIT_MS, 0, 2) == LACUNA_OK);
    for (; count < 2; count += more) {
        CHECK(lacuna_datagram_poll(datagram, done + count, 2 - count, WAIT_MS, &more) == LACUNA_OK);
        CHECK(more > 0);
    }
    CHECK(done[0].result == LACUNA_OK && done[1].result == LACUNA_OK);
    CHECK(done[0].user_data + done[1].user_data == 3 && memcmp(data, buffer, 5000) == 0);
}

static void *read_one(void *unused)
{
    struct lacuna_received received;
    (void)unused;
    CHECK(lacuna_read(far_end, buffer, BYTES, WAIT_MS, &received) == LACUNA_OK);
    CHECK(received.length == BYTES && received.is_complete);
    return NULL;
}

static void transfer(unsigned round)
{
    pthread_t reading;
    fill(round);
    transfer_datagram();
    CHECK(pthread_create(&reading, NULL, read_one, NULL) == 0);
    CHECK(lacuna_write(near_end, data, BYTES, NULL, WAIT_MS) == LACUNA_OK);
    CHECK(pthread_join(reading, NULL) == 0);
    CHECK(memcmp(data, buffer, BYTES) == 0);
}

static void free_connection(void)
{
    lacuna_datagram_free(datagram);
    lacuna_connection_free(near_end);
    lacuna_connection_free(far_end);
    lacuna_listener_free(listener);
    lacuna_context_free(here);
    lacuna_context_free(there);
    lacuna_region_free(region);
    lacuna_window_free(window);
    lacuna_completion_queue_free(queue);
}

static void close_connection(void)
{
    PUT(working->ends, 1);
    CHECK(pthread_join(working->thread, NULL) == 0);
    free(working);
    free_connection();
}

static void free_all(void)
{
    CHECK(descriptors() > before);
    CHECK(lacuna_send_free(waiting_send) == LACUNA_OK);
    CHECK(descriptors() == before);
    CHECK(lacuna_group_operation_free(operation) == LACUNA_OK);
    lacuna_group_free(group);
    free_connection();
    lacuna_settings_free(settings);
    CHECK(descriptors() == before);
}

static void call_groups(void)
{
    struct lacuna_group *made = NULL;
    struct lacuna_group_operation *started = NULL;
    struct lacuna_group_report report;
    struct lacuna_group_missing missing;
    uint64_t count = 1;
    uint32_t number = 0;
    size_t size = 0;
    char text[100];
    REFUSED(lacuna_group_rank, group, &number);
    REFUSED(lacuna_group_ranks, group, &number);
    REFUSED(lacuna_group_failed_rank, group, &number);
    REFUSED(lacuna_group_all_reduce, group, data, buffer, 1, LACUNA_ELEMENT_F32, LACUNA_REDUCTION_SUM, NULL,
            &started);
    REFUSED(lacuna_group_reduce_scatter, group, data, buffer, 1, NULL, LACUNA_ELEMENT_F32, LACUNA_REDUCTION_SUM,
            NULL, &started);
    REFUSED(lacuna_group_all_gather, group, data, buffer, 1, NULL, LACUNA_ELEMENT_F32, NULL, &started);
    REFUSED(lacuna_group_broadcast, group, data, buffer, 1, 0, LACUNA_ELEMENT_F32, NULL, &started);
    REFUSED(lacuna_group_reduce, group, data, buffer, 1, 0, LACUNA_ELEMENT_F32, LACUNA_REDUCTION_SUM, NULL,
            &started);
    REFUSED(lacuna_group_gather, group, data, buffer, 1, NULL, 0, LACUNA_ELEMENT_F32, NULL, &started);
    REFUSED(lacuna_group_scatter, group, data, buffer, 1, NULL, 0, LACUNA_ELEMENT_F32, NULL, &started);
    REFUSED(lacuna_group_all_to_all, group, data, buffer, 1, &count, &count, LACUNA_ELEMENT_F32, NULL,
            &started);
    REFUSED(lacuna_group_exchange, group, data, 0, 1, buffer, 0, 1, LACUNA_ELEMENT_F32, NULL, &started);
    REFUSED(lacuna_group_barrier, group, NULL, &started);
    REFUSED(lacuna_group_form_again, group, 5000);
    REFUSED(lacuna_group_form_with, group, "127.0.0.1:0", 0, 5000);
    REFUSED(lacuna_group_split, group, 0, 0, &made);
    REFUSED(lacuna_group_operation_poll, operation);
    REFUSED(lacuna_group_operation_wait, operation, 5000);
    REFUSED(lacuna_group_operation_report, operation, &report);
    REFUSED(lacuna_group_operation_missing, operation, &missing, 1, &size);
    REFUSED(lacuna_group_operation_algorithm, operation, text, sizeof(text), &size);
    CHECK(!made && !started);
    DONE(lacuna_group_operation_free, operation);
    lacuna_group_free(group), puts("lacuna_group_free");
    /* What makes one is refused here as it would be in the parent. */
    CHECK(lacuna_group_form(NULL, 0, 1, NULL, &made) == LACUNA_USAGE);
    puts("lacuna_group_form");
    CHECK(lacuna_group_join(NULL, NULL, &made) == LACUNA_USAGE);
    puts("lacuna_group_join");
    CHECK(lacuna_group_form_from_environment(NULL, NULL) == LACUNA_USAGE);
    puts("lacuna_group_form_from_environment");
    CHECK(!made);
}

static void call_all(void)
{
    struct lacuna_connection *made = NULL;
    struct lacuna_listener *bound = NULL;
    struct lacuna_receive *receive = NULL;
    struct lacuna_send *send = NULL;
    struct lacuna_received received;
    struct lacuna_ended ended;
    struct lacuna_range gap;
    struct lacuna_region *made_region = NULL;
    struct lacuna_window *made_window = NULL;
    struct lacuna_completion_queue *made_queue = NULL;
    struct lacuna_completion completion;
    struct lacuna_written written;
    struct lacuna_address host;
    struct lacuna_datagram_settings chosen;
    struct lacuna_datagram_error error;
    struct lacuna_datagram *made_datagram = NULL;
    struct lacuna_slice slice;
    const uint8_t *bits = NULL;
    size_t size = 0;
    uint16_t port = 0;
    uint64_t tag = 0;
    uint32_t number = 0;
    uint8_t byte = 0;
    int flag = 0;
    char text[100];
    REFUSED(lacuna_context_progress, here, &flag);
    REFUSED(lacuna_listener_new, there, "127.0.0.1:0", settings, &bound);
    REFUSED(lacuna_listener_port, listener, &port);
    REFUSED(lacuna_listener_accept, listener, &made);
    REFUSED(lacuna_connect, here, address, settings, &made);
    REFUSED(lacuna_write, near_end, data, 5, NULL, 5000);
    REFUSED(lacuna_read, far_end, buffer, BYTES, 5000, &received);
    REFUSED(lacuna_wait_clear_to_send, near_end, 5000);
    REFUSED(lacuna_flush, near_end, 5000);
    REFUSED(lacuna_describe, near_end, text, sizeof(text), &size);
    REFUSED(lacuna_stats_json, near_end, text, sizeof(text), &size);
    REFUSED(lacuna_tag, far_end, &tag);
    REFUSED(lacuna_receive_post, far_end, buffer, BYTES, &receive);
    REFUSED(lacuna_receive_wait, waiting_receive, 5000);
    REFUSED(lacuna_receive_status, waiting_receive, &received);
    REFUSED(lacuna_receive_has_chunk, waiting_receive, 0, &flag);
    REFUSED(lacuna_receive_bitmap, waiting_receive, &bits, &size);
    REFUSED(lacuna_receive_complete, waiting_receive, &received);
    REFUSED(lacuna_receive_post_with, far_end, buffer, BYTES, NULL, &receive);
    REFUSED(lacuna_receive_wait_over, waiting_receive, 5000, &number);
    REFUSED(lacuna_receive_take, waiting_receive, &ended, NULL);
    /* A map is a list of values, too. */
    DONE(lacuna_map_packets, map, &byte, 1, &size);
    DONE(lacuna_map_gaps, map, &gap, 1, &size);
    CHECK(byte == 0 && size == 1 && gap.length == sizeof(waiting_room));
    DONE(lacuna_map_ranges, map, &gap, 1, &size);
    CHECK(size == 0);
    lacuna_map_free(map), puts("lacuna_map_free");
    REFUSED(lacuna_send_start, near_end, data, 5, NULL, 5000, &send);
    REFUSED(lacuna_send_start_offered, near_end, data, 5, NULL, 5000, &send);
    REFUSED(lacuna_send_offer, waiting_send, 0, 5);
    REFUSED(lacuna_send_poll, waiting_send);
    REFUSED(lacuna_send_wait, waiting_send);
    REFUSED(lacuna_region_new, there, buffer, BYTES, NULL, &made_region);
    REFUSED(lacuna_region_key, region, &number);
    REFUSED(lacuna_region_valid, region, 0, 64, &byte, 1);
    REFUSED(lacuna_region_take_valid, region, 0, 64, &byte, 1);
    REFUSED(lacuna_region_revoke, region);
    REFUSED(lacuna_region_window, region, 0, 64, 0, &made_window);
    REFUSED(lacuna_window_key, window, &number);
    REFUSED(lacuna_remote_write, near_end, 7, 0, data, 5, NULL, 5000);
    REFUSED(lacuna_remote_write_start, near_end, 7, 0, data, 5, NULL, 5000, &send);
    REFUSED(lacuna_remote_read, near_end, 7, 0, 5, region, 0, 5000, NULL);
    REFUSED(lacuna_wait_written, far_end, 5000, &written, NULL);
    REFUSED(lacuna_connection_class, near_end, LACUNA_CLASS_CRITICAL, &made);
    REFUSED(lacuna_completion_queue_new, here, 5, &made_queue);
    REFUSED(lacuna_completion_queue_poll, queue, &completion, 1, 5000, &size);
    REFUSED(lacuna_completion_queue_descriptor, queue, &flag);
    REFUSED(lacuna_completion_queue_arm, queue, LACUNA_ARM_ANY, &flag);
    REFUSED(lacuna_complete_to, near_end, queue);
    REFUSED(lacuna_queue_send, near_end, data, 5, NULL, 5000, 0, 1);
    REFUSED(lacuna_queue_receive, near_end, buffer, BYTES, NULL, 1);
    REFUSED(lacuna_queue_remote_write, near_end, 7, 0, data, 5, NULL, 5000, 0, 1);
    REFUSED(lacuna_queue_remote_read, near_end, 7, 0, 5, region, 0, 5000, 1);
    REFUSED(lacuna_queue_written, far_end, 1);
    /* So are addresses. */
    DONE(lacuna_address_parse, "127.0.0.1:7", &host);
    DONE(lacuna_address_text, &host, text, sizeof(text), &size);
    DONE(lacuna_address_sockaddr, &host, text, sizeof(text), &size);
    DONE(lacuna_address_of, text, size, &host);
    DONE(lacuna_datagram_settings_default, &chosen);
    REFUSED(lacuna_datagram_new, here, &chosen, &made_datagram);
    REFUSED(lacuna_datagram_number, datagram, &number);
    REFUSED(lacuna_datagram_local, datagram, &host);
    REFUSED(lacuna_datagram_close, datagram);
    REFUSED(lacuna_datagram_peer, datagram, &host, &tag);
    REFUSED(lacuna_datagram_group, datagram, &host, &tag);
    REFUSED(lacuna_datagram_forget, datagram, peer);
    REFUSED(lacuna_datagram_address, datagram, peer, &host);
    REFUSED(lacuna_datagram_reset, datagram, peer);
    REFUSED(lacuna_datagram_say_sent, datagram, peer);
    REFUSED(lacuna_datagram_join, datagram, &host, 1);
    REFUSED(lacuna_datagram_leave, datagram, &host, 1);
    REFUSED(lacuna_datagram_name_region, datagram, 7, &number);
    slice.memory = data, slice.length = 5;
    REFUSED(lacuna_datagram_send, datagram, peer, &slice, 1, 5000, 0, 1);
    REFUSED(lacuna_datagram_write_record, datagram, peer, 7, 0, &slice, 1, 5000, 0, 1);
    REFUSED(lacuna_datagram_write_named, datagram, peer, 7, 0, &slice, 1, 5000, 0, 1);
    REFUSED(lacuna_datagram_read, datagram, peer, 7, 0, &slice, 1, 5000, 0, 1);
    REFUSED(lacuna_datagram_receive, datagram, &slice, 1, 1);
    REFUSED(lacuna_datagram_poll, datagram, &completion, 1, 5000, &size);
    REFUSED(lacuna_datagram_poll_error, datagram, &error, 1, 5000, &size);
    REFUSED(lacuna_datagram_stats_json, datagram, text, sizeof(text), &size);
    call_groups();
    CHECK(!made_queue && !made_datagram);
    CHECK(!made && !bound && !receive && !send && !bits && !made_region && !made_window);
    DONE(lacuna_send_free, waiting_send);
    lacuna_connection_free(near_end), puts("lacuna_connection_free");
    lacuna_connection_free(far_end);
    lacuna_listener_free(listener), puts("lacuna_listener_free");
    lacuna_context_free(here), puts("lacuna_context_free");
    lacuna_context_free(there);
    lacuna_region_free(region), puts("lacuna_region_free");
    lacuna_window_free(window), puts("lacuna_window_free");
    lacuna_completion_queue_free(queue), puts("lacuna_completion_queue_free");
    lacuna_datagram_free(datagram), puts("lacuna_datagram_free");
    /* Settings are a list of values, as good here as there. */
    DONE(lacuna_settings_set, settings, "tag", "7");
    DONE(lacuna_context_new, settings, &here);
    lacuna_context_free(here);
    lacuna_settings_free(settings), puts("lacuna_settings_free");
    DONE(lacuna_settings_new, &settings);
    lacuna_settings_free(settings);
    CHECK(strlen(lacuna_version()) > 0);
    puts("lacuna_version");
    puts("lacuna_last_error");
}

/* Before anything that was inherited is freed, and after. */
static void connect_in_a_child(void)
{
    struct lacuna_context *theirs[] = {here, there};
    struct lacuna_listener *their_listener = listener;
    struct lacuna_connection *their_ends[] = {near_end, far_end};
    struct lacuna_region *their_region = region;
    struct lacuna_window *their_window = window;
    struct lacuna_completion_queue *their_queue = queue;
    struct lacuna_datagram *their_datagram = datagram;
    int round;
    if (!ALLOCATES_IN_CHILDREN) {
        return;
    }
    for (round = 0; round < 2; round++) {
        open_connection();
        transfer(100 + round);
        if (round == 0) {
            lacuna_connection_free(their_ends[0]);
            lacuna_connection_free(their_ends[1]);
            lacuna_listener_free(their_listener);
            lacuna_context_free(theirs[0]);
            lacuna_context_free(theirs[1]);
            lacuna_region_free(their_region);
            lacuna_window_free(their_window);
            lacuna_completion_queue_free(their_queue);
            lacuna_datagram_free(their_datagram);
            transfer(102);
        }
        close_connection();
    }
    CHECK(descriptors() == before);
}

static void free_in_a_child_of_a_child(void)
{
    in_a_child(free_all);
    REFUSED(lacuna_send_poll, waiting_send);
    in_a_child(connect_in_a_child);
}

/* A connection's peer hears of its process's end, though a child of that lives on. */
static void die_before_the_child(void)
{
    int freed[2], status = 0;
    char byte = 0;
    pid_t parent, child = 0;
    uint16_t port = 0;
    CHECK(pipe(freed) == 0);
    CHECK(lacuna_context_new(settings, &there) == LACUNA_OK);
    CHECK(lacuna_listener_new(there, "127.0.0.1:0", settings, &listener) == LACUNA_OK);
    CHECK(lacuna_listener_port(listener, &port) == LACUNA_OK);
    snprintf(address, sizeof(address), "127.0.0.1:%u", (unsigned)port);
    fflush(stdout);
    CHECK((parent = fork()) >= 0);
    if (parent == 0) {
        alarm(SECONDS_MAX);
        CHECK(lacuna_context_new(settings, &here) == LACUNA_OK);
        CHECK(lacuna_connect(here, address, settings, &near_end) == LACUNA_OK);
        CHECK(lacuna_write(near_end, "hello", 5, NULL, WAIT_MS) == LACUNA_OK);
        CHECK((child = fork()) >= 0);
        if (child == 0) {
            lacuna_connection_free(near_end);
            lacuna_context_free(here);
            lacuna_listener_free(listener);
            child = getpid();
            CHECK(write(freed[1], &child, sizeof(child)) == sizeof(child));
        }
        for (;;)
            pause();
    }
    CHECK(lacuna_listener_accept(listener, &far_end) == LACUNA_OK);
    CHECK(lacuna_read(far_end, buffer, BYTES, WAIT_MS, NULL) == LACUNA_OK);
    CHECK(read(freed[0], &child, sizeof(child)) == sizeof(child));
    CHECK(kill(parent, SIGKILL) == 0 && waitpid(parent, &status, 0) == parent);
    CHECK(lacuna_read(far_end, &byte, 1, WAIT_MS, NULL) == LACUNA_PEER);
    CHECK(strstr(lacuna_last_error(), "its process ended without a goodbye"));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(close(freed[0]) == 0 && close(freed[1]) == 0);
    lacuna_connection_free(far_end);
    lacuna_listener_free(listener);
    lacuna_context_free(there);
}

/* The near end may not have heard yet that an earlier receive was taken. A message to that one fails, and the next one
   goes to the next receive. */
static void write_to_the_waiting(void)
{
    int result = lacuna_write(near_end, waiting_bytes, sizeof(waiting_bytes), NULL, WAIT_MS);
    if (result != LACUNA_OK)
        result = lacuna_write(near_end, waiting_bytes, sizeof(waiting_bytes), NULL, WAIT_MS);
    CHECK(result == LACUNA_OK);
}

static void connections(const char *progress)
{
    struct lacuna_connection *unused = NULL;
    pthread_t accepting;
    void (*const children[])(void) = {
        free_all, call_all, connect_in_a_child, free_in_a_child_of_a_child,
    };
    unsigned round;
    before = descriptors();
    CHECK(lacuna_settings_new(&settings) == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "bind", "127.0.0.1") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "channels", "2") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "one_sided", "on") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "progress", progress) == LACUNA_OK);
    open_connection();
    open_group();
    /* Enough for the socket that is made for a peer that gets nearly all. */
    for (round = 0; round < 10; round++)
        transfer(round);
    CHECK(lacuna_send_start(far_end, waiting_bytes, sizeof(waiting_bytes), NULL, 1000 * WAIT_MS,
                            &waiting_send) == LACUNA_OK);
    CHECK(lacuna_receive_post(far_end, waiting_room, sizeof(waiting_room), &waiting_receive) ==
          LACUNA_OK);
    CHECK(lacuna_receive_take(waiting_receive, NULL, &map) == LACUNA_OK && map);
    /* It holds what the listener has in the child, too. */
    CHECK(pthread_create(&accepting, NULL, accept_one, &unused) == 0);
    for (round = 0; round < sizeof(children) / sizeof(*children); round++) {
        CHECK(lacuna_receive_post(far_end, waiting_room, sizeof(waiting_room),
                                  &waiting_receive) == LACUNA_OK);
        in_a_child(children[round]);
        write_to_the_waiting();
        CHECK(lacuna_receive_wait(waiting_receive, WAIT_MS) == LACUNA_OK);
        CHECK(lacuna_receive_complete(waiting_receive, NULL) == LACUNA_OK);
        transfer(20 + round);
        CHECK(lacuna_send_poll(waiting_send) == LACUNA_RETRY);
    }
    CHECK(lacuna_read(near_end, buffer, BYTES, WAIT_MS, NULL) == LACUNA_OK);
    CHECK(lacuna_send_wait(waiting_send) == LACUNA_OK);
    CHECK(lacuna_send_free(waiting_send) == LACUNA_OK);
    {
        /* The listener has gone on, too. */
        struct lacuna_connection *another = NULL;
        CHECK(lacuna_connect(here, address, settings, &another) == LACUNA_OK);
        CHECK(pthread_join(accepting, NULL) == 0);
        lacuna_connection_free(another);
        lacuna_connection_free(unused);
    }
    lacuna_map_free(map);
    CHECK(lacuna_group_barrier(group, NULL, NULL) == LACUNA_OK);
    CHECK(lacuna_group_operation_free(operation) == LACUNA_OK);
    lacuna_group_free(group);
    close_connection();
    CHECK(descriptors() == before);
    die_before_the_child();
    lacuna_settings_free(settings);
}

/* ---- sdr.h ---- */

static const char *device;
static struct end a, b;
static struct sdr_recv_handle *receive, *behind;
static struct sdr_send_handle *send_, *stream;

static void open_pair(void)
{
    struct sdr_qp_attr attr = pair_attr();
    a = make_end(device, &attr);
    b = make_end(device, &attr);
    connect_ends(&a, &b);
}

static void transfer_sdr(unsigned round)
{
    struct sdr_recv_handle *posted;
    struct sdr_send_handle *sent;
    struct sdr_send_wr wr = send_wr(&a, 0, BYTES);
    fill(round);
    memcpy(a.memory, data, BYTES);
    memset(b.memory, 0, BYTES);
    posted = post_recv(&b, 0, BYTES);
    sent = post_send(&a, &wr);
    finish_send(sent);
    while (!has_chunks(posted, BYTES >> CHUNK_LOG))
        ;
    CHECK(sdr_recv_complete(posted) == SDR_SUCCESS);
    CHECK(memcmp(b.memory, data, BYTES) == 0);
}

static void free_all_sdr(void)
{
    CHECK(descriptors() > before || strcmp(device, "mem") == 0);
    CHECK(sdr_mr_dereg(a.mr) == SDR_SUCCESS && sdr_mr_dereg(b.mr) == SDR_SUCCESS);
    CHECK(descriptors() == before);
    CHECK(sdr_qp_destroy(a.qp) == SDR_SUCCESS && sdr_qp_destroy(b.qp) == SDR_SUCCESS);
    end_pair(&a);
    end_pair(&b);
    CHECK(descriptors() == before);
}

static void call_all_sdr(void)
{
    struct sdr_qp_attr attr = pair_attr();
    struct sdr_dev_attr dev = {2, 0};
    struct sdr_send_wr wr;
    struct sdr_send_start_wr start = {SDR_WR_WRITE, 0};
    struct sdr_send_continue_wr part;
    struct sdr_recv_wr recv;
    struct sdr_recv_handle *posted = NULL;
    struct sdr_send_handle *sent = NULL;
    uint8_t *bits = NULL;
    uint64_t words[16];
    uint32_t key = 0;
    size_t size = 0;
    int flag = 0;
    wr = send_wr(&a, 0, 1000);
    part.length = 1024, part.local_addr = wr.local_addr, part.lkey = a.lkey, part.remote_offset = 0;
    recv.max_length = 1000, recv.lkey = b.lkey, recv.address = (uint64_t)(uintptr_t)b.memory;
    CHECK(!sdr_qp_create(a.context, &attr));
    CHECK(strstr(lacuna_last_error(), "make a context here, or call exec"));
    puts("sdr_qp_create");
    CHECK(!sdr_mr_reg(a.context, data, BYTES, SDR_ACCESS_REMOTE_WRITE));
    CHECK(strstr(lacuna_last_error(), "make a context here, or call exec"));
    puts("sdr_mr_reg");
    REFUSED(sdr_qp_info_size_get, a.qp, &size);
    REFUSED(sdr_qp_info_get, a.qp, data);
    REFUSED(sdr_qp_connect, a.qp, data);
    REFUSED(sdr_recv_post, b.qp, &recv, &posted);
    REFUSED(sdr_recv_imm_get, receive, &key);
    REFUSED(sdr_recv_bitmap_get, receive, &bits, &size);
    REFUSED(sdr_recv_bitmap_chunk_expand, receive, 0, words);
    REFUSED(sdr_recv_complete, receive);
    REFUSED(sdr_send_post, a.qp, &wr, &sent);
    REFUSED(sdr_streaming_send_start, a.qp, &start, &sent);
    REFUSED(sdr_streaming_send_continue, stream, &part);
    REFUSED(sdr_streaming_send_end, stream);
    REFUSED(sdr_send_poll, send_, &flag, NULL);
    REFUSED(sdr_mr_lkey_get, a.mr, &key);
    REFUSED(sdr_mr_rkey_get, a.mr, &key);
    CHECK(!posted && !sent && !bits && !flag);
    DONE(sdr_mr_dereg, a.mr);
    DONE(sdr_qp_destroy, a.qp);
    DONE(sdr_context_destroy, a.context);
    CHECK((a.context = sdr_context_create(device, &dev)));
    puts("sdr_context_create");
    CHECK(sdr_context_destroy(a.context) == SDR_SUCCESS);
}

static void connect_in_a_child_sdr(void)
{
    struct end theirs[] = {a, b};
    if (!ALLOCATES_IN_CHILDREN) {
        return;
    }
    open_pair();
    transfer_sdr(100);
    end_pair(&theirs[0]);
    end_pair(&theirs[1]);
    transfer_sdr(101);
    end_pair(&a);
    end_pair(&b);
    CHECK(descriptors() == before);
}

static void queue_pairs(void)
{
    struct sdr_send_start_wr start = {SDR_WR_WRITE, 0};
    struct sdr_send_continue_wr part;
    struct sdr_send_wr wr;
    void (*const children[])(void) = {free_all_sdr, call_all_sdr, connect_in_a_child_sdr};
    unsigned round;
    int result;
    before = descriptors();
    open_pair();
    for (round = 0; round < 10; round++)
        transfer_sdr(round);
    for (round = 0; round < sizeof(children) / sizeof(*children); round++) {
        /* Under way from b to a: a message that has come in part, and one behind it. */
        receive = post_recv(&a, BYTES, BYTES);
        behind = post_recv(&a, 2 * BYTES, 1000);
        while ((result = sdr_streaming_send_start(b.qp, &start, &stream)) == SDR_RETRY)
            ;
        CHECK(result == SDR_SUCCESS);
        part.length = 1 << CHUNK_LOG, part.lkey = b.lkey, part.remote_offset = 0;
        part.local_addr = (uint64_t)(uintptr_t)b.memory;
        CHECK(sdr_streaming_send_continue(stream, &part) == SDR_SUCCESS);
        while (!has_chunks(receive, 1))
            ;
        wr = send_wr(&b, 0, 1000);
        send_ = post_send(&b, &wr);
        in_a_child(children[round]);
        part.remote_offset = 1;
        CHECK(sdr_streaming_send_continue(stream, &part) == SDR_SUCCESS);
        while (!has_chunks(receive, 2))
            ;
        CHECK(sdr_streaming_send_end(stream) == SDR_SUCCESS);
        finish_send(stream);
        finish_send(send_);
        CHECK(sdr_recv_complete(receive) == SDR_SUCCESS);
        CHECK(sdr_recv_complete(behind) == SDR_SUCCESS);
        transfer_sdr(20 + round);
    }
    end_pair(&a);
    end_pair(&b);
    CHECK(descriptors() == before);
}

/* ---- exec ---- */

static char *program;

/* Nothing of the library is open in a program that was started by one that uses it. */
static void exec_another(void)
{
    char number[20];
    snprintf(number, sizeof(number), "%d", before);
    execl(program, program, "count", number, (char *)NULL);
    CHECK(!"exec");
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && strcmp(argv[1], "count") == 0) {
        CHECK(descriptors() == atoi(argv[2]));
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "sdr") == 0) {
        device = argv[2];
        queue_pairs();
        open_pair();
        transfer_sdr(1);
        in_a_child(exec_another);
        end_pair(&a);
        end_pair(&b);
    } else {
        CHECK(argc == 2);
        connections(argv[1]);
        CHECK(lacuna_settings_new(&settings) == LACUNA_OK);
        CHECK(lacuna_settings_set(settings, "bind", "127.0.0.1") == LACUNA_OK);
        CHECK(lacuna_settings_set(settings, "progress", argv[1]) == LACUNA_OK);
        open_connection();
        transfer(1);
        in_a_child(exec_another);
        close_connection();
        lacuna_settings_free(settings);
    }
    puts("the parent goes on");
    return 0;
}
