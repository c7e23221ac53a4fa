// Door of the room: text to token ids and back.
#pragma once

#include "text/chat_template.h"
#include "text/reasoning_split.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
