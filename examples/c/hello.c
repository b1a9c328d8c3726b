#include <stdio.h>
#include <utipc.h>

int main(void)
{
	struct tipc_addr hello = { .type = 18888, .instance = 1 };
	int server = tipc_socket(SOCK_RDM), client = tipc_socket(SOCK_RDM);
	char text[100];
	tipc_bind(server, 18888, 1, 1, 0);
	tipc_sendto(client, "Hello World", 11, &hello);
	int size = tipc_recvfrom(server, text, sizeof(text), NULL, NULL, NULL);
	printf("%.*s at {18888,1}\n", size, text);
	return size < 0;
}
