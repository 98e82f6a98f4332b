/* Sends ready-made requests over connections that are open already, and counts the answers.
 *
 * It knows nothing of Kafka but the frame: four bytes of length, then so many bytes; and one place in each answer where
 * two bytes must be zero (the error code). What stands on standard input, little-endian and packed:
 *
 *     u32 connections, u32 in flight on each, u64 most requests in all, f64 seconds, u32 place of the error code
 *     for each connection: u32 file descriptor, u32 requests, u64 bytes, the requests one behind the other
 *
 * Each connection sends its requests in a circle. After the seconds, or when all requests are sent, it waits for the
 * answers that are still due. One line of JSON tells what happened; bench/generator.py reads it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_LIMIT 1024
#define SILENCE_MS 30000
#define BUFFER_BYTES (1 << 20)

struct connection {
    int fd;
    uint32_t count;     /* requests in the circle */
    unsigned char *data;
    uint64_t *ends;     /* where each request ends in data */
    uint32_t next;      /* the request that is sent next, or is being sent */
    uint64_t sent;      /* bytes of data that are sent in this round of the circle */
    uint32_t taken;     /* requests from next on that are to be sent */
    uint32_t due;       /* answers that are still to come, those to the taken ones included */
    uint64_t answers;
    uint64_t got;       /* bytes of the answer that is being read, its length included */
    uint64_t size;      /* its whole size, once four bytes are there */
    int is_waiting_to_send;
    unsigned char head[HEAD_LIMIT];
};

static uint64_t all_answers, all_received, all_sent, errors, requests_left, smallest = UINT64_MAX, largest;
static int first_error;
static uint32_t in_flight, head_need, error_at;
static int is_over;
static unsigned char buffer[BUFFER_BYTES];

static void fail(const char *what) {
    fprintf(stderr, "%s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static void read_input(void *into, size_t size) {
    if (fread(into, 1, size, stdin) != size) {
        errno = 0;
        fail("the input ended early");
    }
}

static double now_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static uint32_t big_endian(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void read_connection(struct connection *one) {
    uint32_t fd;
    uint64_t bytes, position = 0;
    read_input(&fd, 4);
    read_input(&one->count, 4);
    read_input(&bytes, 8);
    one->fd = (int)fd;
    one->data = malloc(bytes);
    one->ends = malloc(one->count * sizeof *one->ends);
    if (!one->data || !one->ends) fail("no memory");
    read_input(one->data, bytes);
    for (uint32_t i = 0; i < one->count; i++) {
        position += 4 + big_endian(one->data + position);
        one->ends[i] = position;
    }
    if (position != bytes) fail("the requests have other sizes than they say");
    if (fcntl(one->fd, F_SETFL, fcntl(one->fd, F_GETFL) | O_NONBLOCK) < 0) fail("a connection cannot be used");
}

static void end_answer(struct connection *one) {
    uint32_t have = one->size < head_need ? (uint32_t)one->size : head_need;
    if (error_at != UINT32_MAX) {
        int code = -1;
        if (have == head_need) code = (int16_t)(one->head[4 + error_at] << 8 | one->head[5 + error_at]);
        if (code) {
            if (!errors++) first_error = code;
        }
    }
    if (one->size < smallest) smallest = one->size;
    if (one->size > largest) largest = one->size;
    one->answers++;
    one->due--;
    one->got = one->size = 0;
    all_answers++;
}

static void take(struct connection *one, const unsigned char *data, uint64_t left) {
    while (left) {
        uint64_t want, part;
        if (one->got < 4) want = 4 - one->got;
        else if (one->got < head_need && one->got < one->size) want = (one->size < head_need ? one->size : head_need) - one->got;
        else want = one->size - one->got;
        part = want < left ? want : left;
        if (one->got < head_need) memcpy(one->head + one->got, data, part);
        one->got += part;
        data += part;
        left -= part;
        if (one->got == 4 && !one->size) one->size = 4 + (uint64_t)big_endian(one->head);
        if (one->got >= 4 && one->got == one->size) {
            if (!one->due) fail("an answer came that nobody asked for");
            end_answer(one);
        }
    }
}

/* Read what is there, at most a few buffers, so that no connection keeps the others waiting. */
static void receive(struct connection *one) {
    for (int turn = 0; turn < 4; turn++) {
        ssize_t size = recv(one->fd, buffer, sizeof buffer, 0);
        if (size == 0) { errno = 0; fail("the broker closed the connection"); }
        if (size < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK) return;
            if (errno == EINTR) continue;
            fail("a connection failed");
        }
        all_received += (uint64_t)size;
        take(one, buffer, (uint64_t)size);
        if ((size_t)size < sizeof buffer) return;
    }
}

static void watch(struct connection *one, int poll_fd, int is_waiting_to_send) {
    struct epoll_event event = {.events = EPOLLIN | (is_waiting_to_send ? EPOLLOUT : 0), .data.ptr = one};
    if (one->is_waiting_to_send == is_waiting_to_send) return;
    if (epoll_ctl(poll_fd, EPOLL_CTL_MOD, one->fd, &event) < 0) fail("a connection cannot be watched");
    one->is_waiting_to_send = is_waiting_to_send;
}

/* Take as many requests as may be in flight, and send them; neighbours of the circle go by one call. */
static void submit(struct connection *one, int poll_fd) {
    for (; !is_over && requests_left && one->due < in_flight; one->due++, one->taken++) requests_left--;
    while (one->taken) {
        uint64_t until = (uint64_t)one->next + one->taken;
        uint32_t end = until < one->count ? (uint32_t)until : one->count;
        ssize_t size = send(one->fd, one->data + one->sent, one->ends[end - 1] - one->sent, MSG_NOSIGNAL);
        if (size < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK) fail("a connection failed");
            watch(one, poll_fd, 1);
            return;
        }
        all_sent += (uint64_t)size;
        one->sent += (uint64_t)size;
        for (; one->next < end && one->sent >= one->ends[one->next]; one->next++) one->taken--;
        if (one->next == one->count) one->next = 0, one->sent = 0;
    }
    watch(one, poll_fd, 0);
}

static int are_answered(const struct connection *all, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (all[i].due) return 0;
    return 1;
}

int main(void) {
    uint32_t count;
    double seconds, began, took;
    struct rusage used_before, used;
    struct epoll_event events[256];
    read_input(&count, 4);
    read_input(&in_flight, 4);
    read_input(&requests_left, 8);
    read_input(&seconds, 8);
    read_input(&error_at, 4);
    head_need = error_at == UINT32_MAX ? 4 : 4 + error_at + 2;
    if (head_need > HEAD_LIMIT) { errno = 0; fail("the error code stands too far behind"); }
    struct connection *all = calloc(count, sizeof *all);
    int poll_fd = epoll_create1(0);
    if (!all || poll_fd < 0) fail("cannot begin");
    for (uint32_t i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        read_connection(&all[i]);
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, all[i].fd, &event) < 0) fail("a connection cannot be watched");
    }
    getrusage(RUSAGE_SELF, &used_before);
    began = now_s();
    for (uint32_t i = 0; i < count; i++) submit(&all[i], poll_fd);
    while ((!is_over && requests_left) || !are_answered(all, count)) {
        int ready = epoll_wait(poll_fd, events, 256, SILENCE_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) { errno = 0; fail("no answer for 30 s"); }
        if (now_s() - began >= seconds) is_over = 1;
        for (int i = 0; i < ready; i++) {
            struct connection *one = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(one);
            submit(one, poll_fd);
        }
    }
    took = now_s() - began;
    getrusage(RUSAGE_SELF, &used);
    uint64_t fewest = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) if (all[i].answers < fewest) fewest = all[i].answers;
    double cpu = (used.ru_utime.tv_sec - used_before.ru_utime.tv_sec) + (used.ru_stime.tv_sec - used_before.ru_stime.tv_sec)
        + (used.ru_utime.tv_usec - used_before.ru_utime.tv_usec + used.ru_stime.tv_usec - used_before.ru_stime.tv_usec) / 1e6;
    printf("{\"seconds\": %.6f, \"answers\": %llu, \"fewest_answers\": %llu, \"sent_bytes\": %llu, \"received_bytes\": %llu, "
           "\"errors\": %llu, \"first_error\": %d, \"smallest_answer\": %llu, \"largest_answer\": %llu, \"cpu_s\": %.6f}\n",
           took, (unsigned long long)all_answers, (unsigned long long)fewest, (unsigned long long)all_sent,
           (unsigned long long)all_received, (unsigned long long)errors, first_error, (unsigned long long)smallest,
           (unsigned long long)largest, cpu);
    return 0;
}
