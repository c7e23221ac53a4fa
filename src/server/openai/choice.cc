#include "server/openai/choice.h"
