#include "server/http/http.h"
