/* User objects: data of the caller whose destructor runs when the last reference to it is gone. */
#pragma once

#include "abi.h"

typedef struct UserObject UserObject;

/* References that a graph holds, in the list of that graph and in the list of the object. */
typedef enum { USERS_OF_GRAPH, USERS_OF_OBJECT, USER_LISTS } UserList;

typedef struct UserReference {
  struct UserReference **lists[USER_LISTS], *before[USER_LISTS], *behind[USER_LISTS];
  UserObject *object;
  int64_t count; /* below 0 if the graph released too many */
} UserReference;

/* All of them under the lock of the streams. */
/* Adds references of another list to an empty one; false if memory is out. */
bool cl_user_objects_share(UserReference **to, const UserReference *from);
void cl_user_objects_drop(UserReference **list);
void cl_user_objects_exchange(UserReference **one, UserReference **other);
/* Adds references to a list: new ones, or some of the caller's. */
CUresult cl_user_object_hold(UserReference **list, void *handle, unsigned count, bool move);
CUresult cl_user_object_let_go(UserReference **list, void *handle, unsigned count);

/* Reports what this thread noticed under the lock: a call that released too much, or used an object that was gone.
   Never under a lock; returns the result, so that a call can be one expression. */
CUresult cl_user_objects_report(const char *call, CUresult result);
