#include "server/openai/encode.h"
