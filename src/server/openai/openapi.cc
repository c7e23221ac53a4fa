#include "server/openai/openapi.h"
