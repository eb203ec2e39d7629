#include "client/cli.h"

int main(int argc, char** argv) { return permafrost::client::Main(argc, argv); }
