//! tribunal-adaptor-redis
