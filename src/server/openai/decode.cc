#include "server/openai/decode.h"
