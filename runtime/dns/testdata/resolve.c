// Resolves each argument as programs do, and prints its addresses, sorted and each
// once, or why there are none. Built against glibc and against musl.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int compare(const void *a, const void *b) { return strcmp(a, b); }

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
		static char text[64][INET6_ADDRSTRLEN];
		int n = 0;
		int err = getaddrinfo(argv[i], NULL, &hints, &list);
		printf("%s:", argv[i]);
		if (err)
			printf(" %s", err == EAI_NONAME ? "none" : gai_strerror(err));
		for (struct addrinfo *a = list; a && n < 64; a = a->ai_next) {
			void *from = a->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr
			                                     : (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
			inet_ntop(a->ai_family, from, text[n++], INET6_ADDRSTRLEN);
		}
		qsort(text, n, sizeof text[0], compare);
		for (int k = 0; k < n; k++)
			if (k == 0 || strcmp(text[k], text[k - 1]))
				printf(" %s", text[k]);
		printf("\n");
		if (list)
			freeaddrinfo(list);
	}
	return 0;
}
