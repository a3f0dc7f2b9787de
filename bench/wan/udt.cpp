// UDT as a pipe: a server writes what comes to standard output, a client sends its standard input.
// One connection, then the end. UDT is a library only; this is the least that drives it.
//
// udt server ADDRESS PORT | udt client ADDRESS PORT

#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <udt/udt.h>
#include <unistd.h>
#include <vector>

static const int BUFFER_BYTES = 1 << 20;
// Windows for 1 Gbit/s over 250 ms; the defaults are 25,600 packets and 12 MB.
static const int WINDOW_PACKETS = 45000;
static const int WINDOW_BYTES = 64 << 20;
static const int SOCKET_BYTES = 4 << 20;

static int failed(const char *what) {
    std::fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
    return 1;
}

static void raise_windows(UDTSOCKET socket) {
    UDT::setsockopt(socket, 0, UDT_FC, &WINDOW_PACKETS, sizeof(int));
    UDT::setsockopt(socket, 0, UDT_SNDBUF, &WINDOW_BYTES, sizeof(int));
    UDT::setsockopt(socket, 0, UDT_RCVBUF, &WINDOW_BYTES, sizeof(int));
    UDT::setsockopt(socket, 0, UDP_SNDBUF, &SOCKET_BYTES, sizeof(int));
    UDT::setsockopt(socket, 0, UDP_RCVBUF, &SOCKET_BYTES, sizeof(int));
}

static int serve(const sockaddr_in &address) {
    UDTSOCKET listening = UDT::socket(AF_INET, SOCK_STREAM, 0);
    raise_windows(listening);
    if (UDT::bind(listening, (const sockaddr *)&address, sizeof address) == UDT::ERROR)
        return failed("bind");
    if (UDT::listen(listening, 4) == UDT::ERROR)
        return failed("listen");
    sockaddr_in peer;
    int length = sizeof peer;
    UDTSOCKET socket = UDT::accept(listening, (sockaddr *)&peer, &length);
    if (socket == UDT::INVALID_SOCK)
        return failed("accept");
    std::vector<char> buffer(BUFFER_BYTES);
    for (;;) {
        int bytes = UDT::recv(socket, buffer.data(), BUFFER_BYTES, 0);
        if (bytes == UDT::ERROR)
            break; // The client has closed.
        for (int at = 0; at < bytes;) {
            ssize_t written = write(STDOUT_FILENO, buffer.data() + at, bytes - at);
            if (written <= 0)
                return 1;
            at += written;
        }
    }
    UDT::close(socket);
    UDT::close(listening);
    return 0;
}

static int send_all(const sockaddr_in &address) {
    UDTSOCKET socket = UDT::socket(AF_INET, SOCK_STREAM, 0);
    raise_windows(socket);
    if (UDT::connect(socket, (const sockaddr *)&address, sizeof address) == UDT::ERROR)
        return failed("connect");
    std::vector<char> buffer(BUFFER_BYTES);
    ssize_t bytes;
    while ((bytes = read(STDIN_FILENO, buffer.data(), BUFFER_BYTES)) > 0) {
        for (int at = 0; at < bytes;) {
            int sent = UDT::send(socket, buffer.data() + at, bytes - at, 0);
            if (sent == UDT::ERROR)
                return failed("send");
            at += sent;
        }
    }
    // Closing waits until the peer has everything: UDT lingers for 180 s.
    UDT::close(socket);
    return 0;
}

int main(int count, char **words) {
    if (count != 4) {
        std::fprintf(stderr, "usage: udt server|client ADDRESS PORT\n");
        return 2;
    }
    sockaddr_in address;
    std::memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((unsigned short)std::atoi(words[3]));
    if (inet_pton(AF_INET, words[2], &address.sin_addr) != 1) {
        std::fprintf(stderr, "%s is no IPv4 address\n", words[2]);
        return 2;
    }
    UDT::startup();
    int result = std::strcmp(words[1], "server") == 0 ? serve(address) : send_all(address);
    UDT::cleanup();
    return result;
}
