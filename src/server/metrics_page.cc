#include "server/metrics_page.h"
